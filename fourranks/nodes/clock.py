"""The difference between a node's clock and the notebook's, and the times in a rank's messages by the latter.

A round trip that took t seconds tells the difference to within t / 2; the shortest of many is the best.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from ..protocol.bars import Bar
from ..protocol.calls import Call, Record
from ..protocol.messages import Done, State
from .messages import ClockReading, Pong

KEPT = 32  # round trips: with one a second, clocks drift by microseconds in this time
T = TypeVar("T")


class ClockComparison:
    """Compares the clocks of two machines by the answers to pings."""

    def __init__(self) -> None:
        self._readings: deque[ClockReading] = deque(maxlen=KEPT)

    def note(self, pong: Pong, now: float) -> None:
        """Take an answer into account that has arrived at this time."""
        half = (now - pong.sent) / 2
        self._readings.append(ClockReading(pong.clock - pong.sent - half, half))

    def best(self) -> ClockReading:
        """Return the difference as it is known now."""
        return min(self._readings, key=lambda reading: reading.uncertainty)


def shifted(message: T, seconds: float) -> T:
    """Return a message of a rank with all its times moved by so many seconds."""
    match message:
        case State():
            message.at += seconds
            message.bars = tuple(_shifted_bar(bar, seconds) for bar in message.bars)
            _shift_calls(_calls_of(message), seconds)
        case Done():
            message.bars = tuple(_shifted_bar(bar, seconds) for bar in message.bars)
            if message.record is not None:
                _shift_record(message.record, seconds)
    return message


def _calls_of(state: State) -> Iterator[Call]:
    progress = state.progress
    yield from (*progress.waits, *progress.recent, *progress.failed, *progress.refused)
    if progress.launched is not None:
        yield progress.launched


def _shift_calls(calls: Iterator[Call], seconds: float) -> None:
    for call in {id(call): call for call in calls}.values():  # one may be there more than once
        call.start += seconds
        call.end = None if call.end is None else call.end + seconds
        call.completed = None if call.completed is None else call.completed + seconds


def _shift_record(record: Record, seconds: float) -> None:
    record.start += seconds
    record.end += seconds
    _shift_calls(iter(record.calls), seconds)
    if record.profile is not None:
        record.profile = replace(record.profile, mark=record.profile.mark + seconds)


def _shifted_bar(bar: Bar, seconds: float) -> Bar:
    return replace(bar, began=bar.began + seconds, ended=None if bar.ended is None else bar.ended + seconds)
