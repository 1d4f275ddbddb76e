"""Notes, inside one rank, every operation of its process groups: issued, waited for, finished.

`process_group` hands it each call; `watch` compares its `Progress` between ranks; the calls of a traced cell
go to the notebook for a `Trace`.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

from ..trace import MAX_CALLS, Call
from .agreement import Agreement
from .backward import Awaited, BackwardWait
from .board import Board
from .places import Place, place
from .progress import Progress
from .values import Variable

RECENT = 64  # calls that a report about a running cell carries: enough to compare ranks that have run ahead
GROUPS = 256  # calls of new_group that it carries: who left one out gets stuck in a later one, cells after
CONFLICT_TICK = 0.005  # seconds between looks at the board of a rank that stands still
FINISH_TICK = 0.001  # seconds between looks at a call that was launched and is not complete


class Recorder:
    """Numbers and, while a trace is on, keeps the calls of this rank's process.

    Attributes:
        calls: the calls of the running cell, None while no trace is on.
        variable: what the calls of the running cell look at, if anything.
        dropped: calls of the running cell whose handle was thrown away before they were complete.
        launches: whether the backend only launches operations, so that wait() returns before they are
            complete: NCCL. With Gloo, wait() returns when they are.
    """

    def __init__(self, rank: int, board: Board, launches: bool) -> None:
        self.calls: list[Call] | None = None
        self.variable: Variable | None = None
        self._places: dict[tuple[str, int], Place] = {}
        self.dropped: list[Call] = []
        self._timers: list[tuple[Call, Callable[[], float]]] = []
        self.launches = launches
        self._agreement = Agreement(rank, board)
        self.backward_wait = BackwardWait(self._end_backward_wait)
        self.reset()

    def reset(self) -> None:
        """Forget the past: the process groups were formed anew and all ranks start from the same count."""
        self._issued, self._nbytes, self._waited = 0, 0, 0.0
        self._collectives: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._sends: Counter[tuple[str, int, int]] = Counter()
        self._recvs: Counter[tuple[str, int, int]] = Counter()
        self._passes: Counter[tuple[str, int]] = Counter()
        self._recent: deque[Call] = deque(maxlen=RECENT)
        self._groups: deque[Call] = deque(maxlen=GROUPS)
        self._open: dict[Call, Callable[[], bool]] = {}
        self._blocked: Call | None = None
        self._blocked_since = 0.0
        self._agreement.reset()

    # --- calls, in the order of their life ---------------------------------------------------------------

    def issue(self, call: Call) -> None:
        """Number a call and note that it starts now."""
        call.index, self._issued = self._issued, self._issued + 1
        self._nbytes += call.nbytes
        counter, key = self._counter(call)
        call.seq, counter[key] = counter[key], counter[key] + 1
        (self._groups if call.members else self._recent).append(call)
        line = call.file, call.line
        if line not in self._places:
            self._places[line] = place(*line, call.function)
        self._passes[line] += 1
        if self.calls is not None and len(self.calls) < MAX_CALLS and call.moves_data:
            self.calls.append(call)
        call.start = time.perf_counter()

    def take_back(self, call: Call) -> None:
        """The backend has refused the call, as for a tensor with gaps: to the others it was never made."""
        counter, key = self._counter(call)
        counter[key] -= 1

    def _counter(self, call: Call) -> tuple[Counter, tuple]:
        if call.op == "send":
            return self._sends, (call.group, call.peer, call.tag)
        if call.op == "recv":
            return self._recvs, (call.group, call.peer, call.tag)
        return self._collectives, (call.group, call.ranks)

    def places_of(self, calls: Iterable[Call]) -> dict[tuple[str, int], Place]:
        """The lines of these calls, with the loops and branches around them."""
        return {(call.file, call.line): self._places[call.file, call.line] for call in calls}

    def stand_still_in_conflict(self, call: Call) -> None:
        """Do not return while what another rank is about to do contradicts this call."""
        checks = self._agreement.post(call, self._recvs)
        if not self._agreement.fits(checks):
            outer = self.stand_in(call)
            while not self._agreement.fits(checks):
                time.sleep(CONFLICT_TICK)
            self.go_on(outer)

    def stand_in(self, call: Call | None) -> Call | None:
        """The main thread stands still in a call that is not waited for yet; `go_on` takes the answer."""
        outer, self._blocked = self._blocked, call
        if outer is None:
            self._blocked_since = time.perf_counter()
        return outer

    def go_on(self, outer: Call | None) -> None:
        """The main thread goes on with the call."""
        self._blocked = outer

    def leave_open(self, call: Call, is_completed: Callable[[], bool]) -> None:
        """The call is under way; `is_completed` tells whether it is over."""
        self._open[call] = is_completed
        if len(self._open) > RECENT:
            self.under_way()

    def drop(self, call: Call, is_completed: bool) -> None:
        """The call's handle is thrown away, so nobody will wait for it."""
        if self._open.pop(call, None) and not is_completed:
            self.dropped.append(call)

    def match(self, call: Call, source: int) -> None:
        """A receive from any source has received from this one, as one that had named it would have."""
        self._agreement.withdraw(call, source, self._recvs)
        self._recvs[call.group, None, call.tag] -= 1
        key = call.group, source, call.tag
        call.peer, call.seq, self._recvs[key] = source, self._recvs[key], self._recvs[key] + 1

    def begin_wait(self, call: Call | None) -> tuple[Call | None, float]:
        """Mark the main thread as standing still until `call` completes; `end_wait` takes the answer.

        None stands for a wait that ends by itself, at a limit of the reader's.
        """
        return self.stand_in(call), time.perf_counter()

    def end_wait(self, call: Call, begun: tuple[Call | None, float]) -> None:
        """The thread goes on."""
        self._blocked, began = begun
        now = time.perf_counter()
        call.waited += now - began
        if self._blocked is None:
            self._waited += now - began
        call.end = call.end or now
        if not self.launches:
            self._open.pop(call, None)

    def _end_backward_wait(self, awaited: Awaited, begun: float) -> None:
        """The main thread stood still for these calls, one after the other, in C++ code."""
        now = time.perf_counter()
        for call, is_completed in awaited:
            if is_completed():
                if call.completed is None:  # whoever is to note it is waiting for this thread
                    call.completed = now
                if (end := min(now, call.completed)) > begun:
                    call.end, call.waited, begun = end, end - begun, end
                    self._waited += call.waited

    # --- cells -------------------------------------------------------------------------------------------

    def begin_cell(self, trace: bool, variable: Variable | None = None) -> None:
        """A new cell runs: nothing is waited for yet, and its calls are kept if a trace is on."""
        self.calls = [] if trace else None
        self.variable = variable
        self.dropped, self._timers = [], []
        self._passes.clear()
        self._blocked = None  # an interrupt may have come between a wait's end and the note of it

    def under_way(self) -> list[Call]:
        """Calls that are not complete and that nobody has waited for, the oldest first."""
        for call, is_completed in list(self._open.items()):
            with contextlib.suppress(RuntimeError):  # CUDA has failed: the call will say so where it is used
                if not is_completed():
                    continue
            self._open.pop(call, None)
        return list(self._open)

    def time(self, call: Call, seconds: Callable[[], float]) -> None:
        """Have the time of a launched call on the GPU asked for when it is complete."""
        self._timers.append((call, seconds))

    def finish(self) -> None:
        """Wait for what was launched, so that a cell that is over is over on the GPU, too."""
        for call in self.under_way() if self.launches else []:
            begun = self.begin_wait(call)
            while call in self.under_way():
                time.sleep(FINISH_TICK)
            self.end_wait(call, begun)
        for call, seconds in self._timers:
            with contextlib.suppress(RuntimeError):  # a call that failed has no time
                call.device_seconds = seconds()

    def progress(self, in_native_code: bool = False) -> Progress:
        """A snapshot for `watch`; may be taken by another thread while the main thread waits.

        Args:
            in_native_code: the main thread sleeps where C++ code (DDP's) waits for calls.
        """
        under_way = self.under_way()
        oldest = under_way[0] if under_way else None
        return Progress(
            self._blocked or (oldest if in_native_code else None),
            dict(self._collectives),
            dict(self._sends),
            dict(self._recvs),
            [*self._groups, *self._recent],
            list(self.dropped),
            oldest if self.launches else None,
            dict(self._passes),
            self._nbytes,
            self._waited + (time.perf_counter() - self._blocked_since if self._blocked else 0.0),
        )
