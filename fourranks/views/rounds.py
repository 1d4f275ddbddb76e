"""Sorts what a trace recorded into rounds: which messages passed in each, and what every rank held after it.

Pure bookkeeping for `steps`, which draws it. Values and places come from the looks that the ranks took at a
variable; without any, the rounds have their messages only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import isclose
from typing import NamedTuple

from ..protocol.calls import Call
from ..trace import Trace
from .cells import Held


class Message(NamedTuple):
    """One send and, if it was recorded, its receive."""

    src: int
    dst: int
    calls: dict[int, Call]  # by rank

    @property
    def nbytes(self) -> int:
        return self.calls[self.src].nbytes

    def places(self, rank: int) -> range:
        """Return where in its variable the sender has, or the receiver gets, what the message carries."""
        call = self.calls.get(rank)
        return call.look.moved if call is not None and call.look is not None else range(0)


class Round(NamedTuple):
    """Messages that could pass at the same time, and what every rank held before and after them."""

    number: int  # from 1
    messages: list[Message]
    before: list[Held]
    after: list[Held]


def rounds(trace: Trace) -> list[Round]:
    """Put each message in the round after the latest that its sender or receiver had finished before."""
    looks = [_Looks(trace, rank) for rank in range(trace.world_size)]
    held = [Held(values, [{rank} for _ in values]) for rank, values in enumerate(row.first for row in looks)]
    found = []
    for number, messages in enumerate(_turns(_messages(trace)), start=1):
        values = [row.after(messages) for row in looks]
        after = [Held(row, list(_origins(rank, row, held, messages))) for rank, row in enumerate(values)]
        found.append(Round(number, messages, held, after))
        held = after
    return found


def _messages(trace: Trace) -> list[Message]:
    """Return the messages that were sent, in the order in which both of their ranks had come."""
    sent = [
        Message(rank, call.peer, operation.calls)
        for operation in trace.operations
        for rank, call in operation.calls.items()
        if call.op == "send" and call.peer is not None
    ]
    return sorted(sent, key=lambda message: max(call.start for call in message.calls.values()))


def _turns(messages: list[Message]) -> list[list[Message]]:
    turns: list[list[Message]] = []
    finished: dict[int, list[tuple[float, int]]] = defaultdict(list)  # by rank: (when, in which turn)
    for message in messages:
        calls = message.calls.items()
        earlier = [turn for rank, call in calls for when, turn in finished[rank] if when <= call.start]
        turn = max(earlier, default=-1) + 1
        for rank, call in calls:
            finished[rank].append((call.start if call.end is None else call.end, turn))
        if turn == len(turns):
            turns.append([])
        turns[turn].append(message)
    return turns


class _Looks:
    """The content of one rank's variable when it issued each of its calls, and at the end of each cell."""

    def __init__(self, trace: Trace, rank: int) -> None:
        self._values: list[list[float]] = []
        self._places: dict[int, int] = {}
        for record in (cell[rank] for cell in trace.cells if rank in cell):
            for call in record.calls:
                self._places[id(call)] = len(self._values)
                self._values.append((call.look and call.look.values) or [])
            self._values.append(record.held or [])
        self._now = 0

    @property
    def first(self) -> list[float]:
        return self._values[0] if self._values else []

    def after(self, messages: list[Message]) -> list[float]:
        """Return the values when the rank went on from its last message of these, or of earlier ones."""
        places = [self._places.get(id(call)) for message in messages for call in message.calls.values()]
        self._now = max([self._now, *(place + 1 for place in places if place is not None)])
        return self._values[self._now] if self._values else []


def _origins(
    rank: int, values: list[float], before: list[Held], messages: list[Message]
) -> Iterator[set[int]]:
    """Explain each value of a rank by what it held and what arrived; no ranks where neither does."""
    arriving = [message for message in messages if message.dst == rank]
    own = before[rank]
    for place, value in enumerate(values):
        kept = (own.values[place], own.origins[place]) if place < len(own.values) else (0.0, set())
        arrived = [piece for message in arriving for piece in _piece(message, place, before)]
        overwritten = any(place in message.places(rank) for message in arriving)
        yield _explain(value, kept, arrived, overwritten)


def _piece(message: Message, place: int, before: list[Held]) -> list[tuple[float, set[int]]]:
    """Return what a message carries for this place of its receiver (if anything), and its origins."""
    sent, filled = message.places(message.src), message.places(message.dst)
    source = sent.start + place - filled.start if filled else place
    if source not in sent or (filled and place not in filled) or source >= len(before[message.src].origins):
        return []
    look = message.calls[message.src].look
    if look is None or look.values is None:
        return []
    return [(look.values[source], before[message.src].origins[source])]


def _explain(
    value: float, kept: tuple[float, set[int]], arrived: list[tuple[float, set[int]]], overwritten: bool
) -> set[int]:
    for found, origins in [*arrived, kept] if overwritten else [kept, *arrived]:
        if found == value:
            return origins
    for pieces in [*([piece] for piece in arrived), arrived]:
        if pieces and isclose(kept[0] + sum(found for found, _ in pieces), value, rel_tol=1e-6, abs_tol=1e-9):
            return kept[1].union(*(origins for _, origins in pieces))
    return set()
