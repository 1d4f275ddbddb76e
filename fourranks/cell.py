"""One cell, or one call, running on some ranks: sent out, followed, and brought to an end.

`Cell.run` returns when every rank has answered or when there is a reason to stop; `Cell.free` then brings the
ranks back to their message loop. What the outcome means for the world is decided in `conductor`.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .errors import RemoteError
from .messages import Clear, Display, Done, Feed, Interrupt, Report, Rescue, State, Stream
from .rank.places import Place
from .rank.progress import Progress
from .trace import Call
from .transcript import Transcript
from .watch import Deadlock, RankView, Watch, in_step
from .workers import Workers

TICK = 0.05  # seconds between looks at the clock while nothing arrives
QUIET = 0.25  # seconds before the first report is asked for: most cells are over by then
REPORT_EVERY = 0.1
REPORT_PATIENCE = 2.0  # seconds after which a report is asked for again
GRACE = 0.5  # seconds that ranks still on their way get, once others wait forever, to come where they belong
FEED_PATIENCE = 1.0  # seconds for the message that frees a rank which waits for any sender
FREE_PATIENCE = (0.3, 1.0, 3.0)  # seconds that ranks get after each attempt to free them

_report_numbers = itertools.count(1)

Output = Callable[[Transcript], None]


@dataclass(frozen=True)
class Stop:
    """Why a cell must end before all ranks have answered."""

    reason: str  # "deadlock", "died", "timeout" or "interrupt"
    deadlock: Deadlock | None = None


class Cell:
    """One request to each of some ranks, and what came back.

    Attributes:
        transcript: what the ranks showed.
        done: the answer of each rank that has answered.
        whereabouts: the line that each late rank was in when the cell was stopped.
        states: the last report of each rank of the world.
        places: the lines of the calls that reports told of, by (file, line).
    """

    def __init__(self, workers: Workers, requests: dict[int, Any], on_output: Output | None = None) -> None:
        self._workers = workers
        self._requests = requests
        self._on_output = on_output or (lambda transcript: None)
        self.transcript = Transcript(sorted(requests))
        self.done: dict[int, Done] = {}
        self.states: dict[int, State] = {}
        self.places: dict[tuple[str, int], Place] = {}
        self.whereabouts: dict[int, str] = {}
        self._report = 0  # number of the one that was asked for last
        self._detailed = False  # whether that tells of the ranks' recent calls, too
        self._next_report = 0.0
        self._proven: float | None = None  # since when it is clear that some ranks wait forever
        self._reports_due: set[int] = set()
        self._watch = Watch()

    @property
    def pending(self) -> list[int]:
        """Ranks that are alive and have not answered."""
        return [rank for rank in self._requests if rank not in self.done and self._workers[rank].alive]

    @property
    def died(self) -> list[int]:
        """Ranks of this cell that died without an answer."""
        return [rank for rank in self._requests if rank not in self.done and not self._workers[rank].alive]

    @property
    def late(self) -> frozenset[int]:
        """Ranks that have been asked for a report and have not answered; any thread may ask."""
        return frozenset(self._reports_due)

    def run(self, timeout: float | None, interrupted: Callable[[], bool]) -> Stop | None:
        """Follow the cell until every rank has answered (None) or there is a reason to stop it."""
        for rank, request in self._requests.items():
            self._workers.send(rank, request)
        began = time.monotonic()
        self._next_report = began + QUIET
        while True:
            self._take(TICK)
            now = time.monotonic()
            if self.died:
                return Stop("died")
            if not self.pending:
                return None
            if interrupted():
                return Stop("interrupt")
            if timeout is not None and now - began > timeout:
                return Stop("timeout")
            if proof := self._look(now):
                return Stop("deadlock", proof)

    def errors(self) -> dict[int, RemoteError]:
        """What ranks have raised so far."""
        return {rank: done.error for rank, done in self.done.items() if done.error is not None}

    def free(self, cut: bool, interrupted: Callable[[], bool]) -> bool:
        """Interrupt the ranks that are still busy; True if process groups had to be cut for it."""
        if not self.states:
            self.collect_reports(FREE_PATIENCE[0])
        self.whereabouts = {rank: state.where for rank, state in self.states.items() if rank in self.pending}
        for patience in FREE_PATIENCE:
            if cut:
                self._feed(interrupted)
            if not self.pending:
                break
            for worker in self._workers.living():
                if cut:
                    self._workers.send(worker.rank, Rescue())
                if worker.rank in self.pending:
                    self._workers.send(worker.rank, Interrupt())
            self._wait(patience, interrupted, set(self.pending))
            cut = cut or bool(self.pending)
        return cut

    def _look(self, now: float) -> Deadlock | None:
        """When it is time, compare the ranks' reports and ask for new ones; returns a proof that is ripe.

        Recent calls are told of, and a proof is ripe, only where some rank stands still.
        """
        overdue = now - self._next_report > REPORT_PATIENCE  # a rank that computes in C answers when it can
        if now < self._next_report or (self._reports_due and not overdue):
            return None
        proof = self._watch.observe(self._views()) if self.states else None
        if proof and self._detailed:
            self._proven = self._proven or now
            if proof.settled or now - self._proven > GRACE:
                return proof
        at_once, self._detailed = self._watch.suspicious and not self._detailed, self._watch.suspicious
        self.ask_for_reports(self._detailed)
        self._next_report = now if at_once else now + REPORT_EVERY
        return None

    def _feed(self, interrupted: Callable[[], bool]) -> None:
        """Free the ranks that wait for any sender: the end of a connection does not, a message does."""
        hungry = {rank: call for rank in self.pending if (call := self._waits_for_any(rank)) is not None}
        for rank, call in hungry.items():
            feeders = [q for q in call.ranks if q != rank and self._workers[q].alive]
            if feeders:
                self._workers.send(rank, Interrupt())
                self._workers.send(feeders[0], Feed(call.group, rank, call.tag, call.nbytes))
        if hungry:
            self._wait(FEED_PATIENCE, interrupted, set(hungry))

    def _waits_for_any(self, rank: int) -> Call | None:
        call = self.states[rank].progress.blocked if rank in self.states else None
        return call if call is not None and call.op == "recv" and call.peer is None else None

    def ask_for_reports(self, detailed: bool = False) -> None:
        """Have every living rank report what it is doing."""
        self._report = next(_report_numbers)
        self._reports_due = {worker.rank for worker in self._workers.living()}
        for rank in self._reports_due:
            self._workers[rank].note_memory()
            self._workers.send(rank, Report(self._report, detailed))

    def collect_reports(self, patience: float) -> None:
        """Ask every living rank for a report and wait for the answers."""
        self.ask_for_reports()
        deadline = time.monotonic() + patience
        while self._reports_due and time.monotonic() < deadline:
            self._take(TICK)

    def in_step(self) -> bool:
        """Whether all ranks have communicated equally far, so that the next cell finds them together."""
        self.collect_reports(FREE_PATIENCE[-1])
        return not self._reports_due and in_step({r: state.progress for r, state in self.states.items()})

    def _wait(self, patience: float, interrupted: Callable[[], bool], ranks: set[int]) -> None:
        """Wait until none of these ranks is busy any more."""
        deadline = time.monotonic() + patience
        while ranks.intersection(self.pending) and time.monotonic() < deadline and not interrupted():
            self._take(TICK)

    def _take(self, timeout: float) -> None:
        """Take in what arrives within `timeout`."""
        arrived = self._workers.poll(timeout)
        for rank, message in arrived:
            self._dispatch(rank, message)
        self._reports_due = {rank for rank in self._reports_due if self._workers[rank].alive}
        self._on_output(self.transcript)

    def _dispatch(self, rank: int, message: Any) -> None:
        match message:
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
                if rank in self.pending:
                    self.transcript.bars[rank] = message.bars
                self._reports_due.discard(rank)

    def _views(self) -> dict[int, RankView]:
        return {worker.rank: self._view(worker.rank) for worker in self._workers.all}

    def _view(self, rank: int) -> RankView:
        state = self.states.get(rank)
        progress = state.progress if state is not None else Progress()
        if not self._workers[rank].alive:
            return RankView(progress, "died")
        if rank in self._reports_due:  # it does not answer, so it computes, wherever it stood before
            return RankView(replace(progress, blocked=None))
        if rank not in self._requests:
            return RankView(progress, "took no part in this cell")
        if rank not in self.done or state is None or state.busy:
            return RankView(progress)  # a report from before the end lacks the rank's last calls
        error = self.done[rank].error
        return RankView(progress, f"raised {error.name}" if error else "finished the cell")


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Within this block Ctrl-C (Jupyter's interrupt button) raises nothing; the block asks whether it came.

    The answer is True once for each interrupt. A KeyboardInterrupt at an arbitrary place would leave messages
    half sent and ranks running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    def interrupted() -> bool:
        nonlocal count
        came, count = count > 0, 0
        return came

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
