"""Puts the calls of all ranks together: one `Operation` for every collective and every message.

Also sums operations up for a table. Pure logic on the calls of a `Trace`.
"""

from __future__ import annotations

import functools
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..protocol.calls import Call
from .bandwidth import algbw, busbw, message_size

MESSAGE = "send/recv"  # the name of an operation of a sender and a receiver


class Operation:
    """One collective, or one message from a rank to another.

    Attributes:
        op: name of the function of `torch.distributed`, or `MESSAGE`.
        ranks: the members of its process group.
        calls: the call of each rank that has made one; complete before anything else is asked for.
    """

    def __init__(self, rank: int, call: Call) -> None:
        self.op = MESSAGE if call.is_point_to_point else call.op
        self.ranks = call.ranks
        self.calls = {rank: call}
        self._needed: set[int | None] = {rank, call.peer} if call.is_point_to_point else set(call.ranks)

    @functools.cached_property
    def arrived(self) -> float | None:
        """When the last rank had come; None if one never came."""
        complete = self.calls.keys() == self._needed
        return max(call.start for call in self.calls.values()) if complete else None

    @property
    def size(self) -> int:
        """S of nccl-tests, in bytes; 0 for a collective that a rank did not come to."""
        if self.op == MESSAGE:
            return sum(call.nbytes for call in self.calls.values() if call.op == "send")
        if self.arrived is None:
            return 0
        return message_size(self.op, (call.nbytes for call in self.calls.values()))

    @property
    def seconds(self) -> float | None:
        """From the last rank's arrival until the last rank had its data; None if that is not known.

        A sender has its data all along. On a GPU this is the time of the rank that came last, by the GPU's
        clock: the kernels of the others have also waited for it.
        """
        on_device = self._on_device()
        if on_device:
            return min(on_device.values())
        ends = [call.finished for call in self.calls.values() if call.op != "send"]
        known = [end for end in ends if end is not None]
        if self.arrived is None or len(known) < len(ends):
            return None
        return max(known) - self.arrived

    def stood_still(self, rank: int) -> float:
        """Return the seconds that this rank was blocked while another one had not come yet."""
        arrived, began, end = self.arrived, self.calls[rank].blocked_from, self.calls[rank].end
        if began is None or end is None:
            return 0.0
        return max(0.0, (end if arrived is None else min(arrived, end)) - began)

    def lost(self, rank: int) -> float:
        """Return the same, or the seconds that this rank's GPU waited, if its clock has told."""
        on_device = self._on_device()
        return on_device[rank] - min(on_device.values()) if on_device else self.stood_still(rank)

    def _on_device(self) -> dict[int, float]:
        """Return the GPU's seconds of each rank, if all are known."""
        told = ((rank, call.device_seconds) for rank, call in self.calls.items())
        known = {rank: seconds for rank, seconds in told if seconds is not None}
        return known if self.arrived is not None and len(known) == len(self.calls) else {}


def operations(calls_by_rank: Sequence[Sequence[Call]], formed: Sequence[float] = ()) -> list[Operation]:
    """Return all operations, in the order in which their first rank came.

    A receive from any source that got no message is left out.

    Args:
        calls_by_rank: for each rank its calls (`Trace.calls`).
        formed: moments at which the process groups were formed again and counting began from 0.
    """
    found: dict[tuple[object, ...], Operation] = {}
    for rank, row in enumerate(calls_by_rank):
        for call in row:
            if call.op == "recv" and call.peer is None:
                continue
            key = (bisect(formed, call.start), *_meeting(rank, call))
            if key in found:
                found[key].calls[rank] = call
            else:
                found[key] = Operation(rank, call)
    return sorted(found.values(), key=lambda operation: min(c.start for c in operation.calls.values()))


def _meeting(rank: int, call: Call) -> tuple[object, ...]:
    """Return what the calls of all ranks that belong to one operation have in common."""
    if not call.is_point_to_point:
        return (call.group, call.ranks, call.seq, call.op)
    ends = (rank, call.peer) if call.op == "send" else (call.peer, rank)
    return (call.group, call.seq, call.tag, *ends)


@dataclass(frozen=True)
class Summary:
    """The totals of all operations of one kind in one group.

    Attributes:
        op: name of the operation.
        ranks: the members of the group.
        calls: number of operations; one that several ranks took part in counts once.
        nbytes: their sizes S, added up.
        seconds: their times, added up; None if no end is known.
        lost: seconds that ranks stood still before the last one had come, added up over ranks.
        algbw: bytes per second; of the operations whose end is known.
        busbw: the same, multiplied by the factor of nccl-tests.
        untimed: how many of the operations have no known end.
    """

    op: str
    ranks: tuple[int, ...]
    calls: int
    nbytes: int
    seconds: float | None
    lost: float
    algbw: float | None
    busbw: float | None
    untimed: int


def summarize(found: Sequence[Operation]) -> Iterator[Summary]:
    """Yield one summary for each kind of operation and each group, in the order of their first call."""
    kinds: dict[tuple[str, tuple[int, ...]], list[Operation]] = defaultdict(list)
    for operation in found:
        kinds[operation.op, operation.ranks].append(operation)
    for (op, ranks), some in kinds.items():
        timed = [(operation.size, operation.seconds) for operation in some if operation.seconds is not None]
        size, seconds = sum(size for size, _ in timed), sum(seconds for _, seconds in timed)
        measured = size > 0 and seconds > 0
        yield Summary(
            op=op,
            ranks=ranks,
            calls=len(some),
            nbytes=sum(operation.size for operation in some),
            seconds=seconds if timed else None,
            lost=sum(operation.lost(rank) for operation in some for rank in operation.calls),
            algbw=algbw(size, seconds) if measured else None,
            busbw=busbw(op, size, seconds, len(ranks)) if measured else None,
            untimed=len(some) - len(timed),
        )
