"""How the ranks spent their time: spans of computing, waiting for other ranks and moving data.

Pure logic on the records of a `Trace`; the timeline and the file for Perfetto show the same spans. All
times are by the notebook's clock: ranks of its machine read that, and `nodes.clock` moves the others' times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..protocol.calls import Call, Record
from .operations import Operation

COMPUTING = "computing"  # between calls
WAITING = "waiting"  # blocked in a call to which another rank has not come yet
MOVING = "moving"  # blocked in a call to which all ranks have come: data is on its way
IDLE = "idle"  # not in the cell, while other ranks are


class Span(NamedTuple):
    """A stretch of time, in seconds on the notebook's clock."""

    kind: str
    start: float
    end: float
    call: Call | None = None  # that the rank is blocked in


@dataclass(frozen=True)
class RankSpans:
    """One rank's time in the traced cells.

    Attributes:
        rank: whose it is.
        spans: of the rank's main thread, one after the other, without gaps within a cell.
        in_flight: calls that were under way while the rank went on.
    """

    rank: int
    spans: list[Span]
    in_flight: list[Span]

    def seconds(self, kind: str | None = None) -> float:
        """Return the time spent on one kind of span, or in all."""
        return sum(span.end - span.start for span in self.spans if kind in (None, span.kind))

    @property
    def bubble(self) -> float:
        """Share of the cells' time in which this rank stood still for others: waiting or idle."""
        return bubble([self])

    @property
    def overlap(self) -> float:
        """Seconds in which this rank computed while a call of its own was under way."""
        return sum(
            max(0.0, min(span.end, flight[1]) - max(span.start, flight[0]))
            for flight in _union(self.in_flight)
            for span in self.spans
            if span.kind == COMPUTING
        )


def bubble(ranks: Sequence[RankSpans]) -> float:
    """Return the share of the time in which ranks stood still for others.

    That is what a pipeline's bubble is, (p - 1) / (m + p - 1) for p equal stages and m microbatches: a rank
    waits for data that another has not sent yet, or is done while others still work. Time in which data is on
    its way does not count.
    """
    total = sum(rank.seconds() for rank in ranks)
    still = sum(rank.seconds(WAITING) + rank.seconds(IDLE) for rank in ranks)
    return still / total if total else 0.0


def rank_spans(
    world_size: int, cells: Sequence[dict[int, Record]], operations: Sequence[Operation]
) -> list[RankSpans]:
    """Find what each rank did in the traced cells.

    Args:
        world_size: number of ranks.
        cells: for each cell the record of each rank that ran it to an end (`Trace.cells`).
        operations: of all ranks' calls (`Trace.operations`).
    """
    operation_of = {call: found for found in operations for call in found.calls.values()}
    return [_of_rank(rank, cells, operation_of) for rank in range(world_size)]


def _of_rank(rank: int, cells: Sequence[dict[int, Record]], operation_of: dict[Call, Operation]) -> RankSpans:
    spans: list[Span] = []
    in_flight: list[Span] = []
    for cell in cells:
        if rank in cell:
            own = cell[rank]
            begun = min(record.start for record in cell.values())
            over = max(record.end for record in cell.values())
            spans += [
                Span(IDLE, begun, own.start),
                *_main_thread(rank, own, operation_of),
                Span(IDLE, own.end, over),
            ]
            in_flight += _in_flight(own)
    return RankSpans(rank, [span for span in spans if span.end > span.start], in_flight)


def _main_thread(rank: int, record: Record, operation_of: dict[Call, Operation]) -> Iterator[Span]:
    """Yield what the main thread did from the cell's start to its end."""
    free = record.start
    calls = ((call.blocked_from, call.end, call) for call in record.calls)
    blocking = [(began, end, call) for began, end, call in calls if began is not None and end is not None]
    for began, ended, call in sorted(blocking, key=lambda each: each[0]):
        start, end = max(began, free), min(ended, record.end)
        if end > start:
            of_any_source = call not in operation_of
            arrived = end if of_any_source else min(end, start + operation_of[call].stood_still(rank))
            yield Span(COMPUTING, free, start)
            yield Span(WAITING, start, arrived, call)
            yield Span(MOVING, arrived, end, call)
            free = end
    yield Span(COMPUTING, free, record.end)


def _in_flight(record: Record) -> Iterator[Span]:
    """Yield each asynchronous call from its issue until its data was there, or the rank waited for it."""
    for call in record.calls:
        if call.asynchronous:
            over = record.end if call.finished is None else call.finished
            before = over if call.blocked_from is None else min(over, call.blocked_from)
            yield Span("in flight", call.start, before, call)
            if call.end is not None and over > call.end:  # a GPU works on although the wait has returned
                yield Span("in flight", call.end, over, call)


def _union(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Return the spans with those that overlap joined."""
    joined: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and span.start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], span.end)
        else:
            joined.append((span.start, span.end))
    return joined
