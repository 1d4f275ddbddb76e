"""Notes, inside one rank, every operation of its process groups: issued, waited for, finished.

`process_group` hands it each call; `watch` compares its `Progress` between ranks; the calls of a traced cell
go to the notebook for a `Trace`.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, MutableSequence
from typing import Any

from ..protocol.board import Board
from ..protocol.calls import MAX_CALLS, Call
from ..protocol.progress import Progress
from .agreement import Agreement, Comparison
from .backward import Awaited, BackwardWait
from .blocked import BlockedThreads, Wait
from .threads import main_thread, standing
from .under_way import CallsUnderWay
from .variable import Variable

RECENT = 64  # calls that a report about a running cell carries: enough to compare ranks that have run ahead
# Calls of new_group that it carries: a rank that left one out gets stuck in a later one, cells after.
GROUPS = 256
FINISH_TICK = 0.001  # seconds between looks at a call that was launched and is not complete
LONGEST_ERROR = 300  # characters of a backend's error that a report carries


def from_connection(error: Exception) -> bool:
    """Return whether an error of Gloo's comes from a connection, which it closes then.

    One that is enforced is about an argument, also where the code of connections has looked at it.
    """
    return "gloo/transport" in str(error) and not str(error).startswith("[enforce fail at ")


class Recorder:
    """Numbers and, while a trace is on, keeps the calls of this rank's process.

    Attributes:
        calls: the calls of the running cell, None while no trace is on.
        variable: the one that the calls of the running cell look at, if any.
        dropped: calls of the running cell whose handle was thrown away before they were complete.
        cell_is_stopped: whether the notebook has: then handles go with the functions that had them.
        reinterpreted: messages of the running cell whose other side gave another dtype, and which.
        broke_groups: calls of the running cell whose error closed the connections of their group.
        raised: names of the exceptions that ended threads of the running cell.
        blocked: the threads that stand still in a call.
        times_launched: whether a trace has the times of launched calls on the GPU. Until a call is complete
            its handle is kept for that, and with it the call's tensors.
        launches: whether the backend only launches operations, so that wait() returns before they are
            complete: NCCL. With Gloo, wait() returns when they are.
    """

    def __init__(self, rank: int, board: Board, launches: bool) -> None:
        self.calls: list[Call] | None = None
        self.variable: Variable | None = None
        self.dropped: list[Call] = []
        self.cell_is_stopped = False
        self.reinterpreted: list[tuple[Call, str]] = []
        self.broke_groups: list[Call] = []
        self.raised: list[str] = []
        self.times_launched = True
        self.launches = launches
        self._agreement = Agreement(rank, board)
        self._lock = threading.Lock()  # two threads may issue calls at the same time
        self._main = main_thread()
        self.blocked = BlockedThreads()
        self.backward_wait = BackwardWait(self._end_backward_wait)
        self.reset()

    def reset(self) -> None:
        """Forget the past: the process groups were formed again and all ranks count from 0."""
        with self._lock:  # a thread that was left behind may be in the middle of a call
            self._formed = time.perf_counter()
            self._issued, self._nbytes = 0, 0
            self.blocked.forget_seconds()
            self._collectives: defaultdict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
            self._sends: defaultdict[tuple[str, int | None, int], int] = defaultdict(int)
            self._recvs: defaultdict[tuple[str, int | None, int], int] = defaultdict(int)
            self._passes: defaultdict[tuple[str, int], int] = defaultdict(int)
            self._recent: deque[Call] = deque(maxlen=RECENT)
            self._groups: deque[Call] = deque(maxlen=GROUPS)
            self._failed: deque[Call] = deque(maxlen=RECENT)
            self._refused: deque[Call] = deque(maxlen=RECENT)
            self._broken: set[str] = set()
            self._works_alone = False
            self._open = CallsUnderWay()
            self._agreement.reset()

    # --- calls, in the order of their life ---------------------------------------------------------------

    def issue(self, call: Call) -> None:
        """Give a call its number and note that it starts now."""
        counter, key = self._counter(call)
        with self._lock:
            call.seq = counter[key]
            counter[key] += 1
            self._nbytes += call.nbytes
        self.number(call)
        if self.calls is not None and len(self.calls) < MAX_CALLS and call.moves_data:
            self.calls.append(call)
        call.start = time.perf_counter()

    def number(self, call: Call) -> None:
        """Tell a call from the rank's others, and note its line."""
        with self._lock:
            call.index = self._issued
            self._issued += 1
            for place in {line[:2] for line in (call.at, *call.callers)}:  # a lambda's may be both
                self._passes[place] += 1

    def accept(self, call: Call) -> None:
        """Let others hear of a call: the backend has taken it, or the rank stands still in front of it."""
        with self._lock:
            if self._is_of_before(call):
                return
            counter, key = self._counter(call)
            if not call.is_point_to_point and call.seq + 1 < counter[key]:
                self._give_way(call)
            (self._groups if call.members else self._recent).append(call)

    def _give_way(self, call: Call) -> None:
        """Put a collective behind those that other threads have given to the backend since it got its number.

        The backend counts the calls of a group as they come, whichever threads they are from.
        """
        key = call.group, call.ranks
        ahead = [
            each
            for each in self._recent
            if each.seq > call.seq and not each.is_point_to_point and (each.group, each.ranks) == key
        ]
        for each, seq in zip([*ahead, call], sorted(each.seq for each in (call, *ahead)), strict=True):
            each.seq = seq

    def take_back(self, call: Call, error: Exception) -> None:
        """Undo a call that the backend has refused: to the others it was never made."""
        call.error = _words(error)
        if self._undo(call):
            self._refused.append(call)
            _take_out(self.calls or [], call)

    def _undo(self, call: Call) -> bool:
        """Count a call as never made; False if it was made in a group that was formed again since."""
        with self._lock:
            if self._is_of_before(call):
                return False
            counter, key = self._counter(call)
            counter[key] -= 1
            for calls in (self._groups, self._recent):
                _take_out(calls, call)
            self._agreement.take_back(call)
        return True

    def fail(self, call: Call, error: Exception, breaks_group: bool = False) -> None:
        """Note that the call has ended with an error.

        Args:
            call: the call.
            error: the backend's. The group works on unless it comes from a connection.
            breaks_group: whether it is known that it does not.
        """
        if self._is_of_before(call):
            return
        self._failed.append(call)
        call.error = _words(error)
        call.broke_group = breaks_group or from_connection(error) or self.has_broken(call.group)
        if call.broke_group:
            self.broke_groups.append(call)
            self._broken.add(call.group)

    def _is_of_before(self, call: Call) -> bool:
        """Tell whether a thread left behind makes this call in a group that was formed again since."""
        return call.start < self._formed

    def _is_given_up(self, call: Call) -> bool:
        """Tell whether a thread makes this call for a cell that was stopped.

        An interrupt reaches the main thread alone, and not where that waits for this one in C code, as for a
        callback in DDP's backward pass.
        """
        return self._is_of_before(call) or (self.cell_is_stopped and threading.get_ident() != self._main)

    def work_alone(self) -> None:
        """Hold no call against those of other ranks, or report it as one that waits for them."""
        self._works_alone = True

    def has_broken(self, group: str) -> bool:
        """Return whether a call of this group has failed and closed its connections since it was formed."""
        return group in self._broken

    def _counter(self, call: Call) -> tuple[defaultdict[Any, int], tuple[object, ...]]:
        if call.op == "send":
            return self._sends, (call.group, call.peer, call.tag)
        if call.op == "recv":
            return self._recvs, (call.group, call.peer, call.tag)
        return self._collectives, (call.group, call.ranks)

    def stand_still_in_conflict(
        self,
        call: Call,
        limit: float | None = None,
        is_refused: Callable[[], bool] = lambda: False,
        is_awaited: bool = False,
    ) -> None:
        """Do not return while what another rank is about to do contradicts this call.

        Args:
            call: the call.
            limit: seconds after which the reader wants it to fail; None if never.
            is_refused: whether Gloo refuses the call, whatever the others do.
            is_awaited: whether the other side of this message must be about to be issued, too.
        """
        if self._works_alone:
            return
        call.is_limited = limit is not None
        comparisons = self._agreement.post(call, self._recvs, is_awaited)
        if call.is_point_to_point and (dtype := self._agreement.other_dtype(comparisons)):
            self.reinterpreted.append((call, dtype))
        if self._agreement.fits(comparisons) or (not self.launches and is_refused()):
            return
        self.accept(call)
        fits = self._wait_until_it_fits(call, comparisons, limit)
        if self._is_of_before(call):
            raise RuntimeError(f"the process group of this {call.op} was formed again meanwhile")
        if not fits and self._is_given_up(call):
            self._undo(call)
            raise RuntimeError(f"the cell of this {call.op} was stopped, and no call of other ranks fits it")
        if not fits:
            error = RuntimeError(f"{call.op} timed out after {limit:g} s: no call of other ranks fits it")
            self.fail(call, error, breaks_group=True)
            raise error
        for calls in (self._groups, self._recent):  # until the backend has taken it, too
            _take_out(calls, call)

    def _wait_until_it_fits(self, call: Call, comparisons: list[Comparison], limit: float | None) -> bool:
        """Wait for another rank's call that fits this one; False if it is given up, or its time is over."""
        ends = math.inf if limit is None else call.start + limit
        outer = self.blocked.enter(call if limit is None else None)
        try:
            return self._agreement.wait(
                comparisons, lambda: self._is_given_up(call) or time.perf_counter() > ends
            )
        except BaseException:  # an interrupt: the backend never gets the call, though a trace shows it
            self._undo(call)
            raise
        finally:
            self.blocked.leave(outer)

    def leave_open(
        self, call: Call, is_completed: Callable[[], bool], is_reached: Callable[[], bool] | None = None
    ) -> None:
        """Note that the call is under way; `CallsUnderWay.add` has the arguments."""
        self._open.add(call, is_completed, is_reached)

    def ask_instead(self, call: Call, is_completed: Callable[[], bool]) -> None:
        """Ask this whether the call is over, and no longer its handle."""
        self._open.replace(call, is_completed)

    def drop(self, call: Call, is_completed: bool) -> None:
        """Note that the call's handle is thrown away, so that nothing will wait for it."""
        if self._open.remove(call) and not is_completed and not self.cell_is_stopped:
            self.dropped.append(call)

    def match(self, call: Call, source: int) -> None:
        """Note the rank that a receive from any source has received from, as if it had named that rank."""
        if self._is_of_before(call):
            return
        self._agreement.withdraw(call, source, self._recvs)
        self._recvs[call.group, None, call.tag] -= 1
        key = call.group, source, call.tag
        call.peer, call.seq, self._recvs[key] = source, self._recvs[key], self._recvs[key] + 1

    def begin_wait(self, call: Wait) -> tuple[Wait, float]:
        """Mark this thread as standing still until `call` completes; `end_wait` takes the answer."""
        return self.blocked.enter(call), time.perf_counter()

    def end_wait(self, call: Call, begun: tuple[Wait, float]) -> None:
        """Note that the thread goes on."""
        outer, began = begun
        self.blocked.leave(outer)
        now = time.perf_counter()
        call.waited += now - began
        for each in (*call.batch, call):
            each.end = each.end or now
        self._close(call)

    def _close(self, call: Call) -> None:
        """Forget how to ask whether a call is over that has been waited for: its handle holds tensors."""
        self.backward_wait.let_go(call)
        if not self.launches:
            self._open.remove(call)

    def end_waits(self, awaited: Awaited, begun: tuple[Wait, float], done: bool) -> None:
        """Note that the thread goes on that waited for a future of these calls.

        Args:
            awaited: the calls.
            begun: the answer of `begin_wait`.
            done: whether the future is, and so all calls; Gloo's works say so only a moment later.
        """
        outer, began = begun
        self.blocked.leave(outer)
        self._note_waits([call for call, is_completed in awaited if done or is_completed()], began)

    def note_ends(self, awaited: Awaited) -> None:
        """Note that the code knows now that these calls are over."""
        now = time.perf_counter()
        for call, _ in awaited:
            call.end = call.end or now
            self._open.look_at(call)  # it may have failed
            self._close(call)

    def _end_backward_wait(self, awaited: Awaited, begun: float) -> None:
        """Note that the main thread stood still for these calls in C++ code."""
        completed = [call for call, is_completed in awaited if is_completed()]
        self.blocked.add_seconds(self._note_waits(completed, begun))

    def _note_waits(self, completed: list[Call], begun: float) -> float:
        """Note that a thread stood still for these calls, one after the other; returns for how long."""
        now, waited = time.perf_counter(), 0.0
        for call in completed:
            if call.completed is None:  # the thread that is to note it is waiting for this one
                call.completed = now
            if (end := min(now, call.completed)) > begun:
                call.end, call.waited, begun = end, end - begun, end
                waited += call.waited
        return waited

    # --- cells -------------------------------------------------------------------------------------------

    def begin_cell(self, trace: bool, variable: Variable | None = None) -> None:
        """Begin a new cell: nothing is waited for yet, and its calls are kept if a trace is on."""
        self.calls = [] if trace else None
        self.variable = variable
        self.dropped, self.reinterpreted, self.broke_groups = [], [], []
        self.raised, self.cell_is_stopped = [], False
        self._passes.clear()
        self.blocked.free_main()

    def under_way(self) -> list[Call]:
        """Return the calls that are not complete and that nothing has waited for, the oldest first."""
        return self._open.look()

    def time(self, call: Call, seconds: Callable[[], float]) -> None:
        """Have the time of a launched call on the GPU asked for when it is complete."""
        if self.times_launched:
            self._open.time(call, seconds)

    def finish(self) -> None:
        """Wait for what was launched, so that a cell that is over is over on the GPU, too."""
        for call in self.under_way() if self.launches else []:
            begun = self.begin_wait(call)
            while call in self.under_way():
                time.sleep(FINISH_TICK)
            if not call.asynchronous:
                call.end = None  # it was only launched then
            self.end_wait(call, begun)
        self._open.read_timers()

    def progress(self, busy: bool = True, asleep: bool = False) -> Progress:
        """Take a snapshot for `watch`; another thread may do so while the main thread waits.

        Args:
            busy: whether the main thread runs the reader's code.
            asleep: whether the process has hardly used a processor lately.
        """
        if self._works_alone:
            return Progress(at_work=True)
        waits = self.blocked.waits(busy)
        threads = standing(waits.keys(), busy, asleep)
        under_way = self.under_way()
        # Of a message on Gloo only a thread learns that is in its wait(), and such a thread is in `waits`.
        followed = [call for call in under_way if self.launches or not call.is_point_to_point]
        in_cpp = followed if threads.parked else followed[:1] if threads.in_native_code else []
        launched = under_way[0] if under_way and self.launches else None
        return Progress(
            waits=[call for call in waits.values() if call is not None] + in_cpp,
            at_work=threads.at_work or None in waits.values() or any(call.is_limited for call in in_cpp),
            collectives=dict(self._collectives),
            sends=dict(self._sends),
            recvs=dict(self._recvs),
            recent=[*self._groups, *self._recent],
            launched=launched,
            reached=launched is not None and self._open.is_reached(launched),
            launches=self.launches,
            failed=list(self._failed),
            refused=list(self._refused),
            passes=dict(self._passes),
            nbytes=self._nbytes,
            waited=self.blocked.seconds(),
            raised=list(self.raised),
        )


def _words(error: Exception) -> str:
    """Return the first line of an error, without the place in Gloo's source that it may begin with."""
    return re.sub(r"^\[[^\]]*\] ", "", str(error)).partition("\n")[0][:LONGEST_ERROR].strip()


def _take_out(calls: MutableSequence[Call], call: Call) -> None:
    with contextlib.suppress(ValueError):  # it is not among them
        calls.remove(call)
