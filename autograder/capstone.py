"""The capstone's material: a cluster in numbers, a rank's work, and the cost of both in simulated seconds.

Students import this into their notebook to plan with; the referee adds up the same formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fourranks.trace.bandwidth import busbw_factor

BYTES_OF_A_PARAMETER = 16  # weight, gradient and two moments of Adam, in float32
MOST_ROWS = 1024  # of one rank in one step


@dataclass(frozen=True)
class Work:
    """The work of a rank in each step.

    Attributes:
        rows: sequences of which it computes the gradient.
        microbatch: of them that it computes at a time.
        recompute: whether it forgets activations and computes them again for backward.
    """

    rows: int
    microbatch: int
    recompute: bool = False

    @property
    def microbatches(self) -> int:
        return -(-self.rows // self.microbatch)


@dataclass(frozen=True)
class Cluster:
    """Ranks that differ in speed and memory, and links that differ from pair to pair.

    Attributes:
        nodes: the ranks of each node.
        flops: FLOP/s that each rank attains.
        memory: bytes of each rank.
        launch_seconds: that each microbatch takes besides its arithmetic.
        latency: seconds of a message between each pair of ranks.
        bandwidth: bytes a second between each pair of ranks, in each direction.
        num_parameters: of the model.
        flops_of_row: forward and backward of one sequence.
        bytes_of_row: activations that a sequence keeps for its backward.
        bytes_of_recomputed_row: the same with recompute.
    """

    nodes: tuple[tuple[int, ...], ...]
    flops: tuple[float, ...]
    memory: tuple[float, ...]
    launch_seconds: float
    latency: tuple[tuple[float, ...], ...]
    bandwidth: tuple[tuple[float, ...], ...]
    num_parameters: int
    flops_of_row: float
    bytes_of_row: float
    bytes_of_recomputed_row: float

    @property
    def num_ranks(self) -> int:
        return len(self.flops)

    def compute_seconds(self, rank: int, work: Work) -> float:
        """Return the seconds that a rank's work takes; recompute adds a third of the arithmetic."""
        passes = 4 / 3 if work.recompute else 1.0
        arithmetic = work.rows * passes * self.flops_of_row / self.flops[rank]
        return arithmetic + work.microbatches * self.launch_seconds

    def memory_bytes(self, work: Work) -> float:
        """Return the bytes that a rank needs for its work."""
        row = self.bytes_of_recomputed_row if work.recompute else self.bytes_of_row
        return BYTES_OF_A_PARAMETER * self.num_parameters + min(work.rows, work.microbatch) * row

    def fits(self, rank: int, work: Work) -> bool:
        return self.memory_bytes(work) <= self.memory[rank]

    def collective_seconds(self, op: str, ranks: Sequence[int], num_bytes: float) -> float:
        """Return the seconds of a collective: a ring through its ranks in ascending order.

        The slowest link of the ring sets its pace.

        Args:
            op: torch's name, such as "all_reduce".
            ranks: members of the group.
            num_bytes: S as nccl-tests defines it: the whole tensor, of an all-gather the result.
        """
        n = len(ranks)
        if n == 1:
            return 0.0
        ring = sorted(ranks)
        links = list(zip(ring, ring[1:] + ring[:1], strict=True))
        hops = (2 if op in ("all_reduce", "barrier") else 1) * (n - 1)
        slowest = min(self.bandwidth[one][other] for one, other in links)
        latency = max(self.latency[one][other] for one, other in links)
        return hops * latency + busbw_factor(op, n) * num_bytes / slowest
