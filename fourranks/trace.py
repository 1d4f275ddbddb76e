"""What the ranks communicated: one `Call` for every collective and point-to-point operation.

`recorder` notes the calls inside each rank, `watch` reasons about the unfinished ones, and a `Trace` hands
the finished ones to tables, figures and checks. Nothing here talks to a process.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Call:
    """One collective or point-to-point operation, as one rank issued it.

    Ranks are global ranks throughout. Times are seconds on the machine's monotonic clock, which all ranks
    share.
    """

    op: str  # torch's name: "all_reduce", "send", ...
    group: str  # torch's name of the process group
    ranks: tuple[int, ...]  # members of the group
    seq: int = 0  # n-th collective of the group, or n-th message to (from) this peer with this tag, from 0
    index: int = 0  # n-th call of this rank since the group was formed
    shape: tuple[int, ...] = ()  # of the tensor this rank puts in (the buffer, for a receive)
    dtype: str = ""
    nbytes: int = 0  # of all tensors that this rank puts in
    part: tuple[int, str] | None = None  # elements and dtype that ranks must give alike; None: may differ
    exchange: tuple[tuple[int, ...], tuple[int, ...]] | None = (
        None  # bytes to and from each rank of the group
    )
    peer: int | None = None  # of a send or recv; None is any source
    root: int | None = None  # src or dst of a rooted collective
    reduce_op: str | None = None
    tag: int = 0
    file: str = ""
    line: int = 0
    function: str = ""
    start: float = 0.0
    end: float | None = None  # when its wait returned; None if it was never waited for
    waited: float = 0.0  # seconds that the rank stood still in wait()
    asynchronous: bool = True  # whether the reader's code, not torch, waits for it
    completed: float | None = None  # when the data was there, if that is known apart from `end`
    device_seconds: float | None = None  # on the GPU, by its own clock

    @property
    def is_point_to_point(self) -> bool:
        return self.op in ("send", "recv")

    @property
    def moves_data(self) -> bool:
        """Whether this is a collective or a message, not the making of a group."""
        return self.op not in ("new_group", "init_process_group")

    @property
    def place_in_group(self) -> tuple[str, tuple[int, ...], int]:
        """The same for a collective on all its ranks."""
        return self.group, self.ranks, self.seq

    def agrees_with(self, other: Call) -> bool:
        """Whether two ranks may make these calls at the same place of one group."""
        if (self.op, self.root, self.reduce_op) != (other.op, other.root, other.reduce_op):
            return False
        return self.part is None or other.part is None or self.part == other.part

    def fits(self, rank: int, other: Call, other_rank: int) -> bool:
        """Whether, in an all-to-all, this rank and another give each other what the other takes."""
        if self.exchange is None or other.exchange is None:
            return True
        mine, theirs = self.ranks.index(rank), self.ranks.index(other_rank)
        (gives, takes), (their_gives, their_takes) = self.exchange, other.exchange
        return (gives[theirs], takes[theirs]) == (their_takes[mine], their_gives[mine])


@dataclass
class Trace:
    """All calls of all ranks between entering and leaving `group.trace()`, in the order they were issued."""

    calls: list[list[Call]]

    def bytes_sent(self, rank: int) -> int:
        """Bytes that this rank handed to point-to-point sends."""
        return sum(call.nbytes for call in self.calls[rank] if call.op == "send")
