"""Tells which calls end soon: Gloo ends one when all of its sides have been posted, whatever else happens.

A wait for such a call needs no thread of its own, and threads that take turns cost more than small calls.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple


class Way(NamedTuple):
    """The way of messages between two ranks; those on one way arrive in their order.

    Attributes:
        group: key of a process group.
        sender: its global rank.
        receiver: its global rank.
        tag: of the messages.
    """

    group: str
    sender: int
    receiver: int
    tag: int


# Called with whether the call is sure to end soon; if not, it may end at any time or never.
Told = Callable[[bool], None]


@dataclass
class _Side:
    """Posted sends of a way, or posted receives, whose other side has not been posted."""

    sends: bool
    waiting: deque[Told] = field(default_factory=deque)


class Pairing:
    """The sides of messages that have been posted in a world, matched as Gloo matches them."""

    def __init__(self) -> None:
        self._alone: dict[Way, _Side] = {}
        self._unsure: set[str] = set()  # groups with receives from any source

    def post(self, way: Way, sends: bool, told: Told) -> None:
        """Note one side of a message; `told` is called once, now or when the other side is there."""
        if way.group in self._unsure:
            told(False)
            return
        side = self._alone.setdefault(way, _Side(sends))
        if side.sends == sends:
            side.waiting.append(told)
            return
        other = side.waiting.popleft()
        if not side.waiting:
            del self._alone[way]
        other(True)
        told(True)

    def give_up(self, group: str | None = None) -> None:
        """Say of all messages of a group, or of all groups, that their end is not sure."""
        for way in [way for way in self._alone if group in (None, way.group)]:
            for told in self._alone.pop(way).waiting:
                told(False)

    def give_up_for_good(self, group: str) -> None:
        """Do so for messages still to come, too: a receive takes them from any source."""
        self._unsure.add(group)
        self.give_up(group)


@dataclass
class _OpenCollective:
    """A collective that not all ranks of its group have posted, and what those that have mean by it."""

    meant: Hashable
    waiting: list[Told] = field(default_factory=list)


class Collectives:
    """The collectives that have been posted in a world, matched as Gloo does: by their place in a group."""

    def __init__(self) -> None:
        self._partial: dict[tuple[str, int], _OpenCollective] = {}
        self._posted: Counter[tuple[str, int]] = Counter()  # by group and rank
        self._unsure: set[str] = set()  # groups with a collective that may never end, nor what follows it

    def post(self, group: str, rank: int, size: int, meant: Hashable, told: Told) -> None:
        """Note a rank's side of the next collective of its group.

        Args:
            group: key of a process group.
            rank: its global rank.
            size: number of ranks in the group.
            meant: must be equal on all ranks for the collective to end.
            told: is called once, now or when the last side is there.
        """
        place = group, self._posted[group, rank]
        self._posted[group, rank] += 1
        if group in self._unsure:
            told(False)
            return
        collective = self._partial.setdefault(place, _OpenCollective(meant))
        collective.waiting.append(told)
        if collective.meant != meant:
            self.give_up(group)
        elif len(collective.waiting) == size:
            for each in self._partial.pop(place).waiting:
                each(True)

    def give_up(self, group: str | None = None) -> None:
        """Say of all collectives of a group, or of all groups, that their end is not sure; later ones too."""
        if group is not None:
            self._unsure.add(group)
        for place in [place for place in self._partial if group in (None, place[0])]:
            self._unsure.add(place[0])
            for told in self._partial.pop(place).waiting:
                told(False)
