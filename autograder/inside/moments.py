"""Moments of a run, marked by drivers as they come to them, on the clock of `Call.start`.

A driver marks on a rank; its check finds the moments in the `Outcome`. Where a witness makes the rank's
calls, it notes the moments too, by its own clock and in the same order as the calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

GREW = ""  # no driver's moment: when a rank whose memory is measured was seen to have much more of it
clock = time.perf_counter  # as it is before any code of a student's runs


class Moment(NamedTuple):
    """The moment at which a driver came to a point that it has a name for.

    Attributes:
        taken: the most memory that the rank has had of its own since the moment before, in bytes beyond what
            it had before any code of a student's; None if memory is not measured.
    """

    name: str
    at: float
    taken: int | None = None


class Marks:
    """The moments of one run, noted in the rank itself."""

    def __init__(self) -> None:
        self._moments: list[Moment] | None = None  # outside of a run

    def begin(self) -> None:
        """Forget the run before."""
        self._moments = []

    def mark(self, name: str) -> None:
        """Note this moment."""
        if self._moments is not None:
            self._moments.append(Moment(name, clock()))

    def settle(self) -> None:
        """Return when all that was marked is noted."""

    def end(self) -> list[Moment]:
        """Return the moments of the run, as far as they are noted here."""
        found, self._moments = self._moments or [], None
        return found


marks = Marks()


def mark(name: str) -> None:
    """Note this moment of the run."""
    marks.mark(name)


def settle(name: str) -> None:
    """Note this moment of the run, and return when it is noted."""
    marks.mark(name)
    marks.settle()


class Unmarked(Exception):
    """The moments of a run are not those that its driver marks."""


def read(marked: Sequence[object]) -> list[Moment]:
    """Read the moments of a rank, as they came from it.

    Raises:
        Unmarked: they are none.
    """
    found = []
    for each in marked:
        match each:
            case [str(name), float(at), int() | None as taken] if math.isfinite(at):
                found.append(Moment(name, at, taken))
            case _:
                raise Unmarked("moments that are none")
    return found
