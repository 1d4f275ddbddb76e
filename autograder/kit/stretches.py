"""The stretches of a run: events and communication from one moment of a driver to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autograder.inside.moments import Moment, Unmarked
from autograder.kit.student import Outcome
from fourranks.trace import Call


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
        """Return the moments of this name."""
        return [moment.at for moment in self.moments if moment.name == name]

    def at(self, name: str) -> float:
        """Return the only moment of this name.

        Raises:
            Unmarked: there is none, or more than one.
        """
        return self._only(name).at

    def taken(self, name: str) -> int:
        """Return the most memory of the rank until the only moment of this name, whatever else was marked.

        For the moment that the stretch begins with: since the moment before.

        Raises:
            Unmarked: there is none, or more than one, or its memory was not measured.
        """
        place = self.moments.index(self._only(name))
        return _most(self.moments[min(place, 1) : place + 1])

    def taken_since(self, name: str) -> int:
        """Return the most memory after the only moment of this name, whatever else was marked.

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
        """Return its calls before the only moment of this name."""
        end = self.at(name)
        return [call for call in self.calls if call.start < end]


def _most(moments: Sequence[Moment]) -> int:
    taken = [moment.taken for moment in moments if moment.taken is not None]
    if not taken:
        raise Unmarked("its memory was not measured")
    return max(taken)


def stretches(outcome: Outcome, name: str, number: int) -> list[Stretch]:
    """Cut the run, from its first moment of this name on, into parts that begin with such a moment.

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
