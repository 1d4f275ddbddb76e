"""One cell, or one call, running on some ranks: sent out, followed, and brought to an end.

`Cell.run` returns when every rank has answered or when there is a reason to stop; `Cell.free` then brings the
ranks back to their message loop. `conductor` decides about the world after it.
"""

from __future__ import annotations

import itertools
import math
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .deferred_interrupt import deferred_interrupt
from .given_up import calls_given_up
from .protocol.messages import (
    Clear,
    Display,
    Done,
    FromRank,
    Interrupt,
    Leave,
    Probe,
    Request,
    Rescue,
    State,
    Stream,
)
from .protocol.places import Place
from .protocol.progress import Progress
from .protocol.remote_error import RemoteError
from .transcript import Transcript
from .watch import Deadlock, End, Ended, RankView, Watch, in_step
from .workers import Workers

TICK = 0.05  # seconds between looks at the clock while nothing arrives
QUIET = 0.25  # seconds before the first report is asked for: most cells are over by then
REPORT_EVERY = 0.1
REPORT_PATIENCE = 2.0  # seconds after which a report is asked for again
GRACE = 0.5  # seconds for ranks that still move, once others are proven to wait forever
TELLING_GRACE = 5.0  # the same while a rank reports its error, which says more than any proof
TOLD_PATIENCE = 0.1  # seconds for all ranks to hear of the end before the first cut raises errors on others
FREE_PATIENCE = (0.3, 1.0, 3.0)  # seconds that ranks get after each attempt to free them
SIGNAL_PATIENCE = 30.0  # seconds that ranks get to end after a signal, as torchrun gives them
HANDLING_PATIENCE = 30.0  # seconds for what the reader's code does when it is interrupted, in a `finally`
LEAVING_PATIENCE = 30.0  # seconds for ranks that are free when an import or a call is over

_report_numbers = itertools.count(1)

Output = Callable[[Transcript], None]


@dataclass(frozen=True)
class Stop:
    """Why a cell must end before all ranks have answered."""

    reason: Literal["deadlock", "died", "raised", "timeout", "interrupt"]
    deadlock: Deadlock | None = None


class Cell:
    """One request to each of some ranks, and what came back.

    Args:
        workers: the processes of the world.
        requests: one for each rank that takes part.
        on_output: called with the growing transcript.
        signals: that ranks are to get as they come; the cell has `SIGNAL_PATIENCE` to end after one.

    Attributes:
        transcript: the ranks' output so far.
        done: the answer of each rank that has answered.
        whereabouts: where each rank was when the cell was stopped, or how the cell had ended there.
        patience_with_others: seconds that all ranks get when one has raised.
        is_program: whether a rank may end its process, with exit status 0, as it comes to an end.
        states: the last report of each rank of the world.
        places: the lines of the calls that reports told of, by (file, line).
        cells: the text of the cells that these lines are in, by file.
    """

    def __init__(
        self,
        workers: Workers,
        requests: Mapping[int, Request],
        on_output: Output | None = None,
        signals: deque[int] | None = None,
    ) -> None:
        self._workers = workers
        self._requests = requests
        self._signals = deque() if signals is None else signals
        self._must_end = math.inf  # when it is interrupted, after a signal
        self.began = time.perf_counter()  # by the clock of reports
        self._on_output = on_output or (lambda transcript: None)
        self.transcript = Transcript(sorted(requests))
        self.done: dict[int, Done] = {}
        self.patience_with_others, self.is_program = math.inf, False
        self.states: dict[int, State] = {}
        self.places: dict[tuple[str, int], Place] = {}
        self.cells: dict[str, str] = {}
        self.whereabouts: dict[int, str] = {}
        self._report = 0  # number of the one that was asked for last
        self._detailed = False  # whether that tells of the ranks' recent calls, too
        self._next_report = 0.0
        self._cut = False  # whether connections have been cut to free ranks
        self._proven: float | None = None  # since when it is clear that some ranks wait forever
        self._reports_due: set[int] = set()
        self._asked: set[int] = set()  # for the last report
        self._watch = Watch()

    @property
    def pending(self) -> list[int]:
        """Ranks that are alive and have not answered."""
        return [rank for rank in self._requests if rank not in self.done and self._workers[rank].alive]

    @property
    def died(self) -> dict[int, str]:
        """Ranks of this cell that died without an answer, and how each did."""
        return {
            rank: cause
            for rank in self._requests
            if rank not in self.done and (cause := self._workers[rank].death) is not None
            if not (self.is_program and self._workers[rank].has_left)
        }

    @property
    def left(self) -> list[int]:
        """Ranks of a program that have ended their process themselves, with exit status 0."""
        return [rank for rank in self._requests if rank not in self.done and self._workers[rank].has_left]

    @property
    def left_group(self) -> bool:
        """Whether a rank has destroyed the default process group, as scripts do at their end."""
        return any(done.left_group for done in self.done.values())

    @property
    def broke_group(self) -> bool:
        """Whether a call that failed has broken the connections of the default process group."""
        return any(done.broke_group for done in self.done.values())

    @property
    def late(self) -> frozenset[int]:
        """Ranks that have been asked for a report and have not answered; any thread may ask."""
        return frozenset(self._reports_due)

    def run(self, timeout: float | None, interrupted: Callable[[], bool]) -> Stop | None:
        """Follow the cell until every rank has answered (None) or there is a reason to stop it.

        Args:
            timeout: seconds that it may take.
            interrupted: tells whether the reader wants it to stop.
        """
        for rank, request in self._requests.items():
            self._workers.send(rank, request)
        began, raised = time.monotonic(), math.inf
        self._next_report = began + QUIET
        while True:
            now = time.monotonic()  # before the look: a notebook that was suspended finds what came in time
            self._take(TICK)
            if self.died:
                return Stop("died")
            if not self.pending:
                return None
            self._pass_on_signals(now)
            if interrupted() or now > self._must_end:
                return Stop("interrupt")
            if timeout is not None and now - began > timeout:
                return Stop("timeout")
            if proof := self._look(now):
                return Stop("deadlock", proof)
            raised = min(raised, now) if self.errors() else math.inf
            if now - raised > self.patience_with_others:
                return Stop("raised")

    def _pass_on_signals(self, now: float) -> None:
        while self._signals:
            number = self._signals.popleft()
            for worker in self._workers.living():
                worker.send_signal(number)
            self._must_end, self.patience_with_others = now + SIGNAL_PATIENCE, SIGNAL_PATIENCE

    def value(self, rank: int) -> Any:
        """Return the value that a Run returned or a Pull found on this rank."""
        parcel = self.done[rank].parcel
        assert parcel is not None, "only a Run or a Pull without an error has a value"
        if "torch" in sys.modules:
            return parcel.unpack()
        with deferred_interrupt() as interrupted:  # torch, half imported, would be of no use any more
            value = parcel.unpack()
        if interrupted():
            raise KeyboardInterrupt
        return value

    def show_no_more(self) -> None:
        """Call `on_output` no more, which has raised or is of no interest now."""
        self._on_output = lambda transcript: None

    def errors(self) -> dict[int, RemoteError]:
        """Return what ranks have raised so far."""
        return {rank: done.error for rank, done in self.done.items() if done.error is not None}

    def free(self, cut: bool, interrupted: Callable[[], bool]) -> bool:
        """Interrupt the ranks that are still busy; True if process groups had to be cut for it."""
        if any(rank not in self.states for rank in self.pending):
            self._collect_reports(FREE_PATIENCE[1])
        self.whereabouts = {rank: self._whereabouts(rank) for rank in self._requests}
        for rank in self.late:  # it may have got a SIGSTOP, and then it hears of nothing
            self._workers[rank].send_signal(signal.SIGCONT)
        everything, patient_until = False, time.monotonic() + HANDLING_PATIENCE
        for patience in FREE_PATIENCE:
            if not self.pending:
                break
            for rank in self.pending:
                self._workers.send(rank, Interrupt())
                if everything and rank in self.late:
                    self._workers[rank].send_signal(signal.SIGINT)
            if cut:
                self._collect_reports(TOLD_PATIENCE)
                self._cut = True
                for worker in self._workers.living():
                    self._workers.send(worker.rank, Rescue(everything))
            if self._let_end(patience, patient_until, interrupted):
                patient_until = 0.0
            everything, cut = cut, cut or bool(self.pending)
        self._let_leave(interrupted)
        return cut

    def leave(self, interrupted: Callable[[], bool]) -> None:
        """Have all ranks end, each as Python ends a process; their output meanwhile is the cell's."""
        for worker in self._workers.living():
            self._workers.send(worker.rank, Leave())
        deadline = time.monotonic() + LEAVING_PATIENCE
        while self._workers.living() and time.monotonic() < deadline and not interrupted():
            self._take(TICK)

    def _let_end(self, patience: float, until: float, interrupted: Callable[[], bool]) -> bool:
        """Wait for ranks, longer while code handles an interrupt; True if the reader waits no longer."""
        while not self._wait(patience, interrupted, set(self.pending)):
            if not self.pending or time.monotonic() > until:
                return False
            self._collect_reports(FREE_PATIENCE[1])
            if not any(self._is_handling(rank) for rank in self.pending):
                return False
        return True

    def _is_handling(self, rank: int) -> bool:
        state = self.states.get(rank)
        return state is not None and rank not in self.late and state.handling and not state.progress.waits

    def _let_leave(self, interrupted: Callable[[], bool]) -> None:
        """Wait for ranks that are on their way out: of an import, of a call, or telling of their error."""
        deadline = time.monotonic() + LEAVING_PATIENCE
        while self.pending and time.monotonic() < deadline and not interrupted():
            self._collect_reports(FREE_PATIENCE[-1])
            if not all(self._is_leaving(rank) for rank in self.pending):
                break
            self._wait(FREE_PATIENCE[-1], interrupted, set(self.pending))

    def _is_leaving(self, rank: int) -> bool:
        state = self.states.get(rank)
        if state is None or rank in self.late:  # one call of C code keeps its threads from running
            return True
        return state.telling or state.postponed or state.progress.blocked is not None

    def _whereabouts(self, rank: int) -> str:
        if ended := self._ended(rank):
            return str(ended)
        state = self.states.get(rank)
        if state is None:
            return "has not said where it is"
        calls = dict.fromkeys(call.name for call in state.progress.waits)
        return f"{state.where} (waits in {', '.join(calls)})" if calls else state.where

    def _look(self, now: float) -> Deadlock | None:
        """Compare the ranks' reports and ask for new ones when due; return a proof that has held long enough.

        Ranks tell of recent calls, and a proof counts, only where some rank stands still.
        """
        overdue = now - self._next_report > REPORT_PATIENCE  # a rank that computes in C answers when it can
        if now < self._next_report or (self._reports_due and not overdue):
            return None
        proof = self._watch.observe(self._views()) if self.states else None
        if proof and self._detailed:
            self._proven = self._proven or now
            # The last calls of a rank that has left are unknown: they may just be arriving.
            if (proof.settled and not self.left) or now - self._proven > self._grace:
                return proof
        at_once, self._detailed = self._watch.suspicious and not self._detailed, self._watch.suspicious
        self._ask_for_reports(self._detailed)
        self._next_report = now if at_once else now + REPORT_EVERY
        return None

    @property
    def _grace(self) -> float:
        return TELLING_GRACE if any(state.telling for state in self.states.values()) else GRACE

    def _ask_for_reports(self, detailed: bool = False) -> None:
        """Have every living rank report what it is doing."""
        self._report = next(_report_numbers)
        self._asked = {worker.rank for worker in self._workers.living()}
        self._reports_due = set(self._asked)
        for rank in self._asked:
            self._workers[rank].note_memory()
            self._workers.send(rank, Probe(self._report, detailed))

    def _collect_reports(self, patience: float, detailed: bool = False) -> None:
        """Ask every living rank for a report and wait for the answers."""
        self._ask_for_reports(detailed)
        deadline = time.monotonic() + patience
        while self._reports_due and time.monotonic() < deadline:
            self._take(TICK)

    def look_back(self) -> Deadlock | None:
        """Return which calls ranks have given up, if that is how the cell came to its end."""
        self._collect_reports(FREE_PATIENCE[0], detailed=True)
        return None if self._reports_due else calls_given_up(self._views())

    def in_step(self) -> bool:
        """Return whether all ranks have communicated equally far, so that the next cell finds them level."""
        self._collect_reports(LEAVING_PATIENCE)  # NCCL's abort takes seconds on a GPU that others use, too
        return not self._reports_due and in_step({r: state.progress for r, state in self.states.items()})

    def _wait(self, patience: float, interrupted: Callable[[], bool], ranks: set[int]) -> bool:
        """Wait until none of these ranks is busy any more; returns whether the reader waits no longer."""
        deadline = time.monotonic() + patience
        while ranks.intersection(self.pending) and time.monotonic() < deadline:
            if interrupted():
                return True
            self._take(TICK)
        return False

    def _take(self, timeout: float) -> None:
        """Take in what arrives within `timeout`."""
        arrived = self._workers.poll(timeout)
        for rank, message in arrived:
            self._dispatch(rank, message)
        self._reports_due = {rank for rank in self._reports_due if self._workers[rank].alive}
        self._on_output(self.transcript)

    def _dispatch(self, rank: int, message: FromRank) -> None:
        match message:
            case Stream(name="stderr", is_raw=True) if self._cut and self._workers[rank].alive:
                pass  # torch's C++ code complains of connections that were cut on purpose
            case Stream() | Display() | Clear() if rank in self._requests:
                self.transcript.add(rank, message)
            case Done() if rank in self._requests:
                self.done[rank] = message
                self.transcript.bars[rank] = message.bars
                self.transcript.drop(rank, message.dropped)
                self.transcript.finish(rank)
            case State() if message.number == self._report:  # else it was asked for earlier, by another cell
                self.states[rank] = message
                self.places |= message.places
                self.cells |= message.cells
                if rank in self.pending:
                    self.transcript.bars[rank] = message.bars
                self._reports_due.discard(rank)

    def _views(self) -> dict[int, RankView]:
        return {worker.rank: self._view(worker.rank) for worker in self._workers.all}

    def _view(self, rank: int) -> RankView:
        state = self.states.get(rank)
        progress = state.progress if state is not None else Progress()
        ended = self._ended(rank)
        if not self._workers[rank].alive:
            # Reports that were asked for while it lived may be from before its last calls.
            known = ended if rank not in self._asked else None
            return RankView(replace(progress, waits=[], at_work=False), known)
        if rank in self._reports_due:  # it does not answer, so it computes, wherever it stood before
            return RankView(replace(progress, at_work=True))
        if rank in self.done and (state is None or state.busy):
            return RankView(progress)  # a report from before the end lacks the rank's last calls
        return RankView(progress, ended)

    def _ended(self, rank: int) -> Ended | None:
        """Return how the cell ended on this rank; None while it runs there."""
        if not self._workers[rank].alive:
            return Ended(End.FINISHED if self.is_program and self._workers[rank].has_left else End.DIED)
        if rank not in self._requests:
            return Ended(End.AWAY)
        if rank not in self.done:
            return None
        error = self.done[rank].error
        return Ended(End.RAISED, error.name) if error else Ended(End.FINISHED)
