"""The simulated clocks of the ranks: the time of their work and their recorded calls on a cluster.

Pure functions of calls; no clock of this machine goes in. A collective begins when its last rank has come to
it, and ends for all of them at the same time. Whether a rank waits for it at once makes no difference: the
next one begins after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from autograder.capstone import Cluster, Work
from fourranks.trace import Call
from fourranks.trace.bandwidth import message_size

Calls = Sequence[Sequence[Call]]


class OutOfOrder(Exception):
    """Ranks come to collectives in orders that do not fit together."""


class Clocks:
    """The seconds that each rank has come to, and what the slowest ones were spent on.

    Attributes:
        seconds: of each rank.
        computing: of the slowest rank, over all steps.
        communicating: of the rank that communicates longest, over all steps, without waiting for others.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seconds = [0.0] * cluster.num_ranks
        self.computing = self.communicating = 0.0

    @property
    def latest(self) -> float:
        return max(self.seconds)

    def compute(self, works: Sequence[Work]) -> None:
        """Let each rank do its work."""
        took = [self.cluster.compute_seconds(rank, work) for rank, work in enumerate(works)]
        self.seconds = [before + own for before, own in zip(self.seconds, took, strict=True)]
        self.computing += max(took)

    def communicate(self, calls: Calls) -> None:
        """Let the ranks make their collectives.

        Raises:
            OutOfOrder: a rank's next collective waits for one that another rank makes later.
        """
        left = [deque(call for call in own if call.moves_data) for own in calls]
        took = [0.0] * len(left)
        while any(left):
            together = next(filter(None, (_meeting(own[0], left) for own in left if own)), None)
            if together is None:
                raise OutOfOrder
            ranks = together[0].ranks
            duration = self._duration(together)
            end = max(self.seconds[rank] for rank in ranks) + duration
            for rank in ranks:
                self.seconds[rank] = end
                took[rank] += duration
                left[rank].popleft()
        self.communicating += max(took)

    def _duration(self, calls: Sequence[Call]) -> float:
        op, ranks = calls[0].op.removesuffix("_single"), calls[0].ranks
        if any(call.exchange is not None for call in calls):
            return self.cluster.collective_seconds(op, ranks, _exchanged(calls))
        return self.cluster.collective_seconds(op, ranks, message_size(op, [call.nbytes for call in calls]))


def _meeting(call: Call, left: Sequence[deque[Call]]) -> list[Call] | None:
    """Return this collective's call of each rank, if all have come to it."""
    heads = [left[rank][0] for rank in call.ranks if left[rank]]
    if len(heads) < len(call.ranks) or any(head.place_in_group != call.place_in_group for head in heads):
        return None
    return heads


def _exchanged(calls: Sequence[Call]) -> float:
    """Return S of an all-to-all as if each rank had as much to send or to take as the busiest one."""
    ranks = calls[0].ranks
    exchanged = [
        sum(size for other, size in zip(ranks, sizes, strict=True) if other != rank)
        for rank, call in zip(ranks, calls, strict=True)
        for sizes in call.exchange or ()
    ]
    return max(exchanged) * len(ranks) / max(1, len(ranks) - 1)
