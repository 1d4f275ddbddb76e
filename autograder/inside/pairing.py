"""Which messages end soon: Gloo ends one when both of its sides have been posted, whatever else happens.

A wait for such a message needs no thread of its own, and threads that take turns cost more than messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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


# Called with whether the message is sure to end soon; if not, it may end at any time or never.
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
