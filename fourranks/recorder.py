"""Notes, inside one rank, every operation of its process groups: issued, waited for, finished.

`process_group` hands it each call; `watch` compares its `Progress` between ranks; the calls of a traced cell
go to the notebook for a `Trace`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from .board import Board
from .trace import Call

RECENT = 64  # calls that a report about a running cell carries: enough to compare ranks that have run ahead
CONFLICT_TICK = 0.005  # seconds between looks at the board of a rank that stands still
MAX_CALLS = 1_000_000  # calls kept by one trace; a runaway loop must not take the rank's memory


@dataclass(slots=True)
class Progress:
    """How far one rank has come in its communication: what `watch` compares between ranks."""

    blocked: Call | None = None  # the call that the main thread waits for now
    collectives: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)  # by (group, its ranks)
    sends: dict[tuple[str, int, int], int] = field(default_factory=dict)  # by (group, peer, tag)
    recvs: dict[tuple[str, int, int], int] = field(default_factory=dict)
    recent: list[Call] = field(default_factory=list)
    nbytes: int = 0  # of all calls so far


class Recorder:
    """Numbers and, while a trace is on, keeps the calls of this rank's process."""

    def __init__(self, rank: int, board: Board) -> None:
        self.calls: list[Call] | None = None  # None while no trace is on
        self._rank, self._board = rank, board
        self.reset()

    def reset(self) -> None:
        """Forget the past: the process groups were formed anew and all ranks start from the same count."""
        self._issued, self._nbytes = 0, 0
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
        self._nbytes += call.nbytes
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
            self._blocked,
            dict(self._collectives),
            dict(self._sends),
            dict(self._recvs),
            list(self._recent),
            self._nbytes,
        )
