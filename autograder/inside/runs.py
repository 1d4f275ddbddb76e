"""The outcomes of one run of a student's function on ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from autograder.inside.moments import Moment
from fourranks.trace import Call

RAISED, DEADLOCK, DIED, TIMED_OUT, WRONG_TYPE = "raised", "deadlock", "died", "timed out", "wrong type"
UNTOLD = "untold traffic"  # the ranks made other calls than they say, or moved more bytes, or less


@dataclass(frozen=True)
class Ran:
    """The answers of all ranks.

    Attributes:
        answers: of each rank.
        calls: that each rank made.
        moments: that each rank's driver marked, where a witness has noted them; else answers have them.
    """

    answers: Sequence[bytes | memoryview]
    calls: list[list[Call]]
    moments: Sequence[Sequence[Moment]] | None = None


@dataclass
class RunFailed(Exception):
    """A run without an outcome.

    Attributes:
        reason: RAISED, DEADLOCK, DIED, TIMED_OUT, WRONG_TYPE or UNTOLD.
        message: what happened, for the student.
        exception: name of the exception's class, when a rank raised one, of which others may have got no news
            until they TIMED_OUT.
        calls: each rank's communication until then.
        no_such_rank: whether a call was refused because its group has no rank of the number that it named.
        stuck_in: the calls that ranks waited in when that was proven to be forever, by torch's names.
    """

    reason: str
    message: str
    exception: str = ""
    calls: list[list[Call]] = dataclasses.field(default_factory=list)
    no_such_rank: bool = False
    stuck_in: Sequence[str] = ()

    def __str__(self) -> str:
        return self.message


class NotDefined(NameError):
    """A notebook has no function or class of the name that a check asks for."""
