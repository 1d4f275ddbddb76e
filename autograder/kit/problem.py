"""The problem of one case of a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autograder.kit.mistakes import Mistake
from autograder.kit.text import shortened, visible
from fourranks.protocol.remote_error import plain

MAX_GOT = 10_000  # characters: the longest story of a deadlock on eight ranks takes a third of it


@dataclass(frozen=True)
class Problem:
    """The problem of one case: the mistake, the expectation, and the finding.

    Much of what was found is a student's text: it is kept as far as people read it, and all of it visible.
    """

    mistake: Mistake
    expected: str
    got: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "got", visible(shortened(plain(self.got), MAX_GOT)))


def first(problems: Iterable[Problem | None]) -> Problem | None:
    """Return the first problem that there is."""
    return next(filter(None, problems), None)
