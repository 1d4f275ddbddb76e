"""Moments of a run, marked by drivers as they come to them, on the clock of `Call.start`.

A driver marks on a rank; its check finds the moments in the `Outcome`. Where a witness makes the rank's
calls, it notes the moments too, by its own clock and in the same order as the calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fourranks.trace import Call

if TYPE_CHECKING:
    from autograder.student import Outcome

GREW = ""  # no driver's moment: when a rank whose memory is measured was seen to have much more of it
_clock = time.perf_counter  # as it is before any code of a student's runs


class Moment(NamedTuple):
    """When a driver came to a point that it has a name for.

    Attributes:
        taken: the most memory that the rank has had of its own since the moment before, in bytes beyond what
            it had before any code of a student's; None if memory is not measured.
    """

    name: str
    at: float
    taken: int | None = None


# --- on a rank


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
            self._moments.append(Moment(name, _clock()))

    def settle(self) -> None:
        """Return when all that was marked is noted."""

    def end(self) -> list[Moment]:
        """The moments of the run, as far as they are noted here."""
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


# --- where checks are


class Unmarked(Exception):
    """The moments of a run are not those that its driver marks."""


def read(marked: Sequence[object]) -> list[Moment]:
    """The moments of a rank, as they came from it.

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


@dataclass(frozen=True)
class Stretch:
    """A part of a run, from a moment to the next one of the same name.

    Attributes:
        moments: in it, the first included.
        calls: that were made in it.
    """

    moments: Sequence[Moment]
    calls: Sequence[Call]

    def all(self, name: str) -> list[float]:
        """When the moments of this name were."""
        return [moment.at for moment in self.moments if moment.name == name]

    def at(self, name: str) -> float:
        """When the only moment of this name was.

        Raises:
            Unmarked: there is none, or more than one.
        """
        return self._only(name).at

    def taken(self, name: str) -> int:
        """The most memory that the rank has had until the only moment of this name, whatever else was marked.

        For the moment that the stretch begins with: since the moment before.

        Raises:
            Unmarked: there is none, or more than one, or its memory was not measured.
        """
        place = self.moments.index(self._only(name))
        return _most(self.moments[min(place, 1) : place + 1])

    def taken_since(self, name: str) -> int:
        """The most that it has had after the only moment of this name, whatever else was marked.

        Raises:
            Unmarked: there is none, or more than one, or its memory was not measured.
        """
        return _most(self.moments[self.moments.index(self._only(name)) + 1 :])

    def _only(self, name: str) -> Moment:
        found = [moment for moment in self.moments if moment.name == name]
        if len(found) != 1:
            raise Unmarked(f"{name!r} was marked {len(found)} times in a step")
        return found[0]

    def until(self, name: str) -> list[Call]:
        """Its calls before the only moment of this name."""
        end = self.at(name)
        return [call for call in self.calls if call.start < end]


def _most(moments: Sequence[Moment]) -> int:
    taken = [moment.taken for moment in moments if moment.taken is not None]
    if not taken:
        raise Unmarked("its memory was not measured")
    return max(taken)


def stretches(outcome: Outcome, name: str, number: int) -> list[Stretch]:
    """The run from its first moment of this name on, in parts that begin with such a moment.

    Raises:
        Unmarked: there are not so many of them.
    """
    moments = outcome.moments
    begins = [place for place, moment in enumerate(moments) if moment.name == name]
    if len(begins) != number:
        raise Unmarked(f"{name!r} was marked {len(begins)} times, not {number}")
    found = []
    for begin, end in zip(begins, [*begins[1:], len(moments)], strict=True):
        begun = moments[begin].at
        ended = moments[end].at if end < len(moments) else float("inf")
        found.append(
            Stretch(moments[begin:end], [call for call in outcome.calls if begun <= call.start < ended])
        )
    return found
