"""A rank's record of its communication: one `Call` for every collective and point-to-point operation.

`rank.recorder` notes the calls inside each rank, `watch` reasons about the unfinished ones, and a `Trace`
puts the finished ones of all ranks together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from .looks import Look
from .places import Line, Place

THREAD = "a thread that it started"  # how `Call.through` begins where the reader's line started a thread
MAX_CALLS = 1_000_000  # of a rank that one trace keeps; a runaway loop must not take the rank's memory
PlaceInGroup: TypeAlias = tuple[str, tuple[int, ...], int]  # a group's name and ranks, and a number in it
Exchange: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # bytes to and from each rank of the group


@dataclass(slots=True, eq=False)
class Call:
    """One collective or point-to-point operation, as one rank issued it.

    Ranks are global ranks throughout. Times are seconds on the clock of the rank's machine, and to the
    notebook on its own (`nodes.clock`).
    """

    op: str  # torch's name: "all_reduce", "send", ...
    group: str  # torch's name of the process group
    ranks: tuple[int, ...]  # members of the group
    seq: int = 0  # n-th collective of the group, or n-th message to (from) this peer with this tag, from 0
    index: int = 0  # n-th call of this rank since the group was formed
    shape: tuple[int, ...] = ()  # of the tensor this rank puts in, or takes, if it puts in none
    dtype: str = ""
    nbytes: int = 0  # of all tensors that this rank puts in
    part: tuple[int, str] | None = None  # elements and dtype that ranks must give alike; None: may differ
    exchange: Exchange | None = None
    peer: int | None = None  # of a send or recv; None is any source
    root: int | None = None  # src or dst of a rooted collective
    members: tuple[int, ...] = ()  # of the group that new_group makes
    reduce_op: str | None = None
    tag: int = 0
    file: str = ""
    line: int = 0
    function: str = ""
    callers: tuple[Line, ...] = ()  # lines that called that function, the innermost first
    called: str = ""  # the function of torch.distributed in that line, where its name is not `op`
    through: str = ""  # library, or part of torch, between the reader's line and the call
    start: float = 0.0
    end: float | None = None  # when its wait returned; None if it was never waited for
    waited: float = 0.0  # seconds that the rank stood still in wait()
    asynchronous: bool = True  # whether the reader's code, not torch, waits for it
    completed: float | None = None  # when the data was there, if that is known apart from `end`
    device_seconds: float | None = None  # on the GPU, by its own clock
    look: Look | None = None  # at the traced variable, when the call was issued
    error: str = ""  # the backend's message when it refused the call, or when the call failed
    is_limited: bool = False  # whether it fails by itself, at a timeout that the reader gave
    broke_group: bool = False  # whether that error has closed the connections of its group
    batch: tuple[Call, ...] = ()  # calls before it that the backend runs together with it, as one

    @property
    def at(self) -> Line:
        """The line of the reader's code that issued it."""
        return Line(self.file, self.line, self.function)

    @property
    def name(self) -> str:
        """The name of the function that the reader has called."""
        return self.called or self.op

    @property
    def is_point_to_point(self) -> bool:
        return self.op in ("send", "recv")

    @property
    def takes_from_any(self) -> bool:
        """Whether one of the other ranks is enough to complete it, whichever that is."""
        return self.waits_for_key or (self.op == "recv" and self.peer is None)

    @property
    def waits_for_key(self) -> bool:
        """Whether this is no call of a process group but a wait for a key of a store."""
        return self.group == "store"

    @property
    def moves_data(self) -> bool:
        """Whether this is a collective or a message, not the making of a group."""
        return self.op not in ("new_group", "split_group", "init_process_group")

    @property
    def finished(self) -> float | None:
        """When the data was there, as far as that is known."""
        return self.end if self.completed is None else self.completed

    @property
    def blocked_from(self) -> float | None:
        """When the rank began to stand still for this call; it did so until `end`. None if it never did."""
        return max(self.start, self.end - self.waited) if self.end is not None and self.waited else None

    @property
    def place_in_group(self) -> PlaceInGroup:
        """The same for a collective on all its ranks."""
        return self.group, self.ranks, self.seq

    def agrees_with(self, other: Call) -> bool:
        """Return whether two ranks may make these calls at the same place of one group."""
        if (self.op, self.root, self.reduce_op) != (other.op, other.root, other.reduce_op):
            return False
        return self.part is None or other.part is None or self.part == other.part

    def fits(self, rank: int, other: Call, other_rank: int) -> bool:
        """Return whether, in an all-to-all, this rank and another give each other what the other takes."""
        if self.exchange is None or other.exchange is None:
            return True
        there_and_back = self.gives(other_rank), other.gives(rank)
        return there_and_back == (other.takes(rank), self.takes(other_rank))

    def gives(self, rank: int) -> int:
        """Return the bytes that this rank sends to another one in an all-to-all."""
        assert self.exchange is not None
        return self.exchange[0][self._position(rank)]

    def takes(self, rank: int) -> int:
        """Return the bytes that this rank expects from another one in an all-to-all."""
        assert self.exchange is not None
        return self.exchange[1][self._position(rank)]

    def _position(self, rank: int) -> int:
        is_its_own = rank < len(self.ranks) and self.ranks[rank] == rank  # as in the default group
        return rank if is_its_own else self.ranks.index(rank)


@dataclass(frozen=True)
class Tracing:
    """The notes that ranks are asked to take while a trace is on, besides their calls."""

    profile: bool = False  # everything that torch.profiler sees
    values: str = ""  # name of the variable that they look at whenever they communicate


@dataclass(frozen=True)
class Profile:
    """The record of torch.profiler of one cell."""

    MARK: ClassVar[str] = "fourranks clock"  # an event by which the profiler's clock is aligned with ours

    compressed: bytes  # its own Chrome trace, gzipped
    pid: int  # of the rank's process
    mark: float  # the middle of the last mark, on the clock of calls


@dataclass(slots=True)
class Record:
    """One rank's notes of one traced cell."""

    start: float  # when the rank began with the cell
    end: float  # when it was through
    calls: list[Call]  # in the order they were issued
    places: dict[tuple[str, int], Place]  # of each call, by its file and line
    profile: Profile | None = None
    held: list[float] | None = None  # by the traced variable at the end; None if it was not asked for

    def close(self, under_way: set[Call]) -> None:
        """Note the ends that could not be noted when they came.

        Args:
            under_way: calls that have not ended yet.
        """
        for call in self.calls:
            if call.finished is None and not call.asynchronous:  # interrupted just behind its wait
                call.end, call.waited = self.end, self.end - call.start
            elif call.finished is None and call not in under_way:  # noted by a thread that waits for this one
                call.completed = self.end
