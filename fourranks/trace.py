"""What a rank communicated: one `Call` for every collective and point-to-point operation.

`process_group` records the calls inside each rank, `watch` reasons about the unfinished ones, and a `Trace`
hands the finished ones to tables, figures and checks. Nothing here talks to a process.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from .board import Board

RECENT = 64  # calls that a report about a running cell carries: enough to compare ranks that have run ahead
CONFLICT_TICK = 0.005  # seconds between looks at the board of a rank that stands still
MAX_CALLS = 1_000_000  # calls kept by one trace; a runaway loop must not take the rank's memory


@dataclass(slots=True, eq=False)
class Call:
    """One collective or point-to-point operation, as one rank issued it.

    Ranks are global ranks throughout. Times are seconds on the machine's monotonic clock, which all ranks
    share.
    """

    op: str  # torch's name: "all_reduce", "send", ...
    group: str  # torch's name of the process group
    ranks: tuple[int, ...]  # members of the group
    seq: int  # n-th collective of the group, or n-th message to (from) this peer with this tag, from 0
    index: int  # n-th call of this rank since the group was formed
    shape: tuple[int, ...]  # of the tensor this rank puts in (the buffer, for a receive)
    dtype: str
    nbytes: int  # of all tensors that this rank puts in
    part: (
        tuple[int, str] | None
    )  # elements and dtype that all ranks must give alike; None where they may differ
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

    @property
    def is_point_to_point(self) -> bool:
        return self.op in ("send", "recv")

    def agrees_with(self, other: Call) -> bool:
        """Whether two ranks may make these calls at the same place of one group."""
        if (self.op, self.root, self.reduce_op) != (other.op, other.root, other.reduce_op):
            return False
        return self.part is None or other.part is None or self.part == other.part


@dataclass(slots=True)
class Progress:
    """How far one rank has come in its communication: what `watch` compares between ranks."""

    blocked: Call | None = None  # the call that the main thread waits for now
    collectives: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)  # by (group, its ranks)
    sends: dict[tuple[str, int, int], int] = field(default_factory=dict)  # by (group, peer, tag)
    recvs: dict[tuple[str, int, int], int] = field(default_factory=dict)
    recent: list[Call] = field(default_factory=list)


class Recorder:
    """Numbers and, while a trace is on, keeps the calls of this rank's process."""

    def __init__(self, rank: int, board: Board) -> None:
        self.calls: list[Call] | None = None  # None while no trace is on
        self._rank, self._board = rank, board
        self.reset()

    def reset(self) -> None:
        """Forget the past: the process groups were formed anew and all ranks start from the same count."""
        self._issued = 0
        self._collectives: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._sends: Counter[tuple[str, int, int]] = Counter()
        self._recvs: Counter[tuple[str, int, int]] = Counter()
        self._recent: deque[Call] = deque(maxlen=RECENT)
        self._any_source: set[tuple[str, int]] = set()  # (group, tag) in which messages cannot be paired up
        self._blocked: Call | None = None
        self._board.clear()

    def issue(self, call: Call) -> None:
        """Number a call and note that it starts now."""
        call.index, self._issued = self._issued, self._issued + 1
        if call.op == "send":
            counter, key = self._sends, (call.group, call.peer, call.tag)
        elif call.op == "recv":
            counter, key = self._recvs, (call.group, call.peer, call.tag)
        else:
            counter, key = self._collectives, (call.group, call.ranks)
        call.seq, counter[key] = counter[key], counter[key] + 1
        self._recent.append(call)
        if self.calls is not None and len(self.calls) < MAX_CALLS:
            self.calls.append(call)
        call.start = time.perf_counter()

    def begin_cell(self, trace: bool) -> None:
        """A new cell runs: nothing is waited for yet, and its calls are kept if a trace is on."""
        self.calls = [] if trace else None
        self._blocked = None  # an interrupt may have come between a wait's end and the note of it

    def stand_still_in_conflict(self, call: Call) -> None:
        """Post the call; do not return while what another rank has posted contradicts it."""
        keys = self._keys(call)
        if keys is None:
            return
        key, peers, value = keys
        self._board.post(key, value)
        if self._in_conflict(call, key, peers, value):
            begun = self.begin_wait(call)
            while self._in_conflict(call, key, peers, value):
                time.sleep(CONFLICT_TICK)
            self.end_wait(call, begun)

    def _keys(self, call: Call) -> tuple[int, tuple[int, ...], int] | None:
        """Key to post under, ranks to compare with, value to post; None if nothing can be compared."""
        if not call.is_point_to_point:
            value = hash((call.op, call.root, call.reduce_op, call.part))
            return hash((call.group, call.seq)), call.ranks, value
        if call.peer is None:
            self._any_source.add((call.group, call.tag))
        if (call.group, call.tag) in self._any_source:
            return None
        ends = (self._rank, call.peer) if call.op == "send" else (call.peer, self._rank)
        return hash((call.group, *ends, call.tag, call.seq)), (call.peer,), call.nbytes

    def _in_conflict(self, call: Call, key: int, peers: tuple[int, ...], value: int) -> bool:
        for peer in peers:
            theirs = self._board.read(peer, key)
            if theirs is None or peer == self._rank:
                continue
            if call.is_point_to_point:
                sent, room = (value, theirs) if call.op == "send" else (theirs, value)
                if sent > room:
                    return True
            elif theirs != value:
                return True
        return False

    def begin_wait(self, call: Call) -> tuple[Call | None, float]:
        """Mark the calling thread as standing still until `call` completes; `end_wait` takes the answer."""
        outer, self._blocked = self._blocked, call
        return outer, time.perf_counter()

    def end_wait(self, call: Call, begun: tuple[Call | None, float]) -> None:
        """The thread goes on."""
        self._blocked, began = begun
        now = time.perf_counter()
        call.waited += now - began
        call.end = call.end or now

    def progress(self) -> Progress:
        """A snapshot for `watch`; may be taken by another thread while the main thread waits."""
        return Progress(
            self._blocked, dict(self._collectives), dict(self._sends), dict(self._recvs), list(self._recent)
        )


@dataclass
class Trace:
    """All calls of all ranks between entering and leaving `group.trace()`, in the order they were issued."""

    calls: list[list[Call]]

    def bytes_sent(self, rank: int) -> int:
        """Bytes that this rank handed to point-to-point sends."""
        return sum(call.nbytes for call in self.calls[rank] if call.op == "send")
