"""`RankGroup`: a world of ranks that a notebook, a test or a script runs code on.

    group = fourranks.start(world_size=4)
    group.execute("x = torch.ones(2); dist.all_reduce(x)")
    group.pull("x")

The ranks are worker processes (`workers`), forked from a warm one (`zygote`). Whatever the code on them does,
a call here ends: with a result, or with an error of `errors` that says what happened, and the world stays
usable.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import zygote
from .cell import Cell, Output, Stop, deferred_interrupt
from .errors import FourRanksError, RankDied, StartError, name_ranks
from .hardware import place
from .live import Activity, busy_rank
from .messages import Complete, Execute, Form, Inspect, Pull, Push, Run
from .parcel import Parcel
from .shipping import notebook_sources, packed_call, packed_variables
from .trace import Trace, Tracing
from .transcript import Transcript
from .verdict import Aftermath, verdict
from .workers import Worker, Workers

MAX_WORLD_SIZE = 128  # every two ranks of Gloo share a connection: beyond this, file descriptors run out
ANSWER_PATIENCE = 0.3  # seconds that someone who has pressed Tab is to wait
FORM_TIMEOUT = 60.0  # seconds to connect all ranks; 128 ranks on two cores need a few
IMPORT_TIMEOUT = 5.0  # seconds more for each rank that has to import torch first


@dataclass(frozen=True)
class RankStatus:
    """One line of `%ranks`."""

    rank: int
    pid: int
    device: str
    backend: str
    state: str  # "idle", or how the process ended
    memory_bytes: int
    gpu: str = ""  # name of the GPU that `device` is on
    gpu_bytes: int = 0  # that the rank's tensors took there after its last cell


class RankGroup:
    """One world of ranks. Use `fourranks.start` to make one.

    Attributes:
        world_size: number of ranks.
        backend: "gloo" or "nccl".
        device: "cpu" or "cuda", what the ranks compute on.
        start_method: "fork" or "spawn".
    """

    def __init__(
        self,
        world_size: int = 4,
        backend: str = "auto",
        timeout: float | None = None,
        device: str = "auto",
        start_method: str = "auto",
    ) -> None:
        self.world_size = _checked_world_size(world_size)
        self.backend, self.device = backend, device  # as asked for; _start() decides
        self.start_method = _chosen_start_method(start_method)
        self._timeout = timeout
        self._lock = threading.Lock()  # held by the thread that runs a cell, restarts or stops
        self._gate = threading.Lock()  # held while a thread restarts or stops: no cell begins
        self._cell: Cell | None = None  # the one that runs
        self._ending = False  # a thread wants to restart or stop: the cell is not worth rescuing
        self._interrupt_asked = False
        self._trace: Trace | None = None
        self._workers: Workers | None = None
        self._start()

    # --- running code ------------------------------------------------------------------------------------

    def execute(
        self,
        source: str,
        ranks: Sequence[int] | None = None,
        timeout: float | None = None,
        execution_count: int | None = None,
        on_output: Output | None = None,
    ) -> Transcript:
        """Run a cell's source on the ranks and return what they showed.

        Args:
            source: the text of a cell; magics and top-level await work.
            ranks: which ranks run it; all by default.
            timeout: seconds after which the cell is stopped; none by default.
            execution_count: the number of the cell, for tracebacks.
            on_output: called with the growing transcript while the cell runs.

        Raises:
            RankError, RankDied, DeadlockError, CellTimeout: as in `errors`.
            KeyboardInterrupt: the cell was interrupted; the world stays usable.
        """
        request = Execute(source, execution_count, self._tracing)
        return self._conduct(
            dict.fromkeys(self._checked_ranks(ranks), request), timeout, on_output
        ).transcript

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function with the same arguments on every rank; returns its results in rank order.

        The function is sent by value, so it may come from a cell. Inside it `rank`, `world_size`, `device`,
        `torch` and `dist` are there. What it prints is printed here when it is over. Errors are those of
        `execute`.
        """
        parcel = packed_call(function, args, kwargs)
        return self._call(dict.fromkeys(range(self.world_size), parcel), None, show=True)

    def map(
        self,
        function: Callable[..., Any],
        inputs: Sequence[tuple],
        timeout: float | None = None,
        show: bool = True,
    ) -> list[Any]:
        """Call a function on every rank with that rank's own arguments; returns its results in rank order.

        Args:
            function: as for `run`.
            inputs: one tuple of arguments for each rank, in rank order.
            timeout: seconds after which the call is stopped.
            show: whether what the function prints is printed here, too, when it is over.
        """
        if len(inputs) != self.world_size:
            raise ValueError(
                f"map() needs one tuple of arguments a rank: {self.world_size}, not {len(inputs)}"
            )
        parcels = {rank: packed_call(function, args, {}) for rank, args in enumerate(inputs)}
        return self._call(parcels, timeout, show)

    def push(self, ranks: Sequence[int] | None = None, /, **variables: Any) -> None:
        """Set variables on the ranks (all by default)."""
        request = Push(packed_variables(variables))
        self._conduct(dict.fromkeys(self._checked_ranks(ranks), request), None)

    def pull(self, expression: str, ranks: Sequence[int] | None = None) -> list[Any]:
        """The value of a variable, or of an expression, on each rank (all by default)."""
        chosen = self._checked_ranks(ranks)
        cell = self._conduct(dict.fromkeys(chosen, Pull(expression)), None)
        return [cell.done[rank].parcel.unpack() for rank in chosen]

    def ask(self, question: Complete | Inspect) -> Any:
        """Rank 0's answer to a question about its variables; None if it cannot give one at once."""
        with deferred_interrupt():
            if not self._lock.acquire(blocking=False):  # a cell runs; its thread reads all messages
                return None
            try:
                return self._workers and self._workers.ask(0, question, ANSWER_PATIENCE)
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def trace(self, profile: bool = False, values: str = "") -> Iterator[Trace]:
        """Record every collective and point-to-point call of the cells and calls inside the block.

        Args:
            profile: let torch.profiler run on the ranks, too; `Trace.to_chrome` shows what it sees.
            values: name of a variable on the ranks, a small tensor; `Trace.steps` shows what it holds.
        """
        if self._trace is not None:
            raise FourRanksError("A trace of this world is being recorded already; traces do not nest.")
        self._trace = Trace(self.world_size, Tracing(profile, values))
        try:
            yield self._trace
        finally:
            self._trace = None

    # --- life and death ----------------------------------------------------------------------------------

    def status(self) -> list[RankStatus]:
        """What each rank is: process, device, state and memory."""
        if self._workers is None:
            return []
        self._workers.poll(0)
        for worker in self._workers.living():
            worker.note_memory()
        return [
            RankStatus(
                worker.rank,
                worker.pid,
                self._placement.devices[worker.rank],
                self.backend,
                worker.cause or ("busy" if self._lock.locked() else "idle"),
                worker.memory_bytes,
                self._placement.gpu_names[worker.rank],
                worker.gpu_bytes,
            )
            for worker in self._workers.all
        ]

    def snapshot(self) -> list[Activity]:
        """What each rank is doing now; any thread may ask while another one runs a cell."""
        cell, workers = self._cell, self._workers
        if workers is None:
            return []
        if cell is None:  # else its thread does so
            workers.notice_deaths()
            for worker in workers.living():
                worker.note_memory()
        return [_activity(worker, cell) for worker in workers.all]

    @property
    def formed_anew(self) -> int:
        """How often the default process group was formed again since the ranks were started."""
        return self._generation - 1

    @property
    def running(self) -> bool:
        """Whether the world has been started and not stopped."""
        return self._workers is not None

    @property
    def busy(self) -> bool:
        """Whether a cell or a call runs on this world now."""
        return self._cell is not None

    def interrupt(self) -> None:
        """Stop the cell that another thread runs on this world, as the notebook's interrupt button does."""
        self._interrupt_asked = True

    def restart(self) -> None:
        """Replace all ranks by fresh ones; their variables are gone, and a cell of another thread ends."""
        with self._alone():
            self._restart()

    def stop(self) -> None:
        """End all ranks and everything that they started; a cell of another thread ends first."""
        with self._alone():
            self._end()

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        """A world that nobody can reach any more ends: a notebook's cell may be run again and again."""
        with contextlib.suppress(Exception):
            self.stop()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<RankGroup: {self.world_size} ranks, {self.backend}, {state}>"

    # --- internals ---------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._placement = place(self.world_size, self.backend, self.device, lambda: zygote.shared().gpus())
        self.backend = self._placement.backend
        self.device = self._placement.devices[0].partition(":")[0]
        self._generation = 0
        with deferred_interrupt() as interrupted:
            self._workers = Workers(self.backend, self._placement.devices, self.start_method)
            try:
                self._form(interrupted)
            except BaseException:
                self._end()
                raise

    def _restart(self) -> None:
        self._end()
        self._start()

    def _end(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.kill()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Make the thread that runs a cell leave it, and let no other one begin meanwhile."""
        with deferred_interrupt(), self._gate:
            self._ending = True
            try:
                with self._lock:
                    yield
            finally:
                self._ending = False

    def _form(self, interrupted: Callable[[], bool]) -> None:
        """Form the default process group, anew if there was one."""
        if self._trace is not None:
            self._trace.formed.append(time.perf_counter())
        self._generation += 1
        cell = Cell(self._workers, dict.fromkeys(range(self.world_size), Form(self._generation)))
        imports = IMPORT_TIMEOUT * self.world_size if self.start_method == "spawn" else 0
        stop = cell.run(FORM_TIMEOUT + imports, interrupted)
        error = verdict(self._workers, cell, stop, cell.errors(), Aftermath.INTACT)
        if isinstance(error, KeyboardInterrupt):
            raise error
        if error is not None:
            raise StartError(f"The ranks could not form a process group.\n{error}") from None

    def _call(self, parcels: dict[int, Parcel], timeout: float | None, show: bool) -> list[Any]:
        sources = notebook_sources()
        requests = {rank: Run(parcel, sources, self._tracing) for rank, parcel in parcels.items()}
        shown: dict[str, Transcript] = {}
        try:
            cell = self._conduct(requests, timeout, lambda transcript: shown.update(last=transcript))
        finally:
            if show and shown and (text := str(shown["last"])):
                print(text)
        return [cell.done[rank].parcel.unpack() for rank in sorted(requests)]

    def _conduct(
        self, requests: dict[int, Any], timeout: float | None, on_output: Output | None = None
    ) -> Cell:
        """Run one request a rank to its end, whatever that is, and leave the world usable."""
        with deferred_interrupt() as came:
            with self._gate:
                begun = self._lock.acquire(blocking=False)
            if not begun:
                raise FourRanksError("The ranks are busy with another cell; wait for it or interrupt it.")
            try:
                self._require_living(requests)
                self._interrupt_asked = False
                self._cell = cell = Cell(self._workers, requests, on_output)
                error = self._run_cell(cell, timeout, came)
            finally:
                self._cell = None
                self._lock.release()
        if error is not None:
            raise error
        return cell

    def _run_cell(self, cell: Cell, timeout: float | None, came: Callable[[], bool]) -> BaseException | None:
        def interrupted() -> bool:
            asked, self._interrupt_asked = self._interrupt_asked, False
            return came() or asked or self._ending

        workers = self._workers
        stop = cell.run(self._timeout if timeout is None else timeout, interrupted)
        errors = cell.errors()
        aftermath = self._recover(cell, stop, interrupted) if stop or errors else Aftermath.INTACT
        self._keep_records(cell)
        for rank, done in cell.done.items():
            workers[rank].gpu_bytes = done.gpu_bytes
        return verdict(workers, cell, stop, errors, aftermath)

    def _recover(self, cell: Cell, stop: Stop | None, interrupted: Callable[[], bool]) -> Aftermath:
        """Bring all ranks back to idle and their process groups back in step."""
        if self._ending:
            return Aftermath.ENDED
        must_cut = stop is not None and stop.reason in ("deadlock", "died")
        cut = cell.free(must_cut, interrupted) if stop else False
        if cell.pending:
            self._restart()
            return Aftermath.RESTARTED
        if cell.died:
            return Aftermath.DEAD
        in_step = cell.in_step()  # asked in any case: an answer means that the rank has done its cutting
        if in_step and not cut:
            return Aftermath.INTACT
        try:
            self._form(interrupted)
            return Aftermath.FORMED_ANEW
        except (StartError, KeyboardInterrupt):
            self._restart()
            return Aftermath.RESTARTED

    @property
    def _tracing(self) -> Tracing | None:
        return self._trace.tracing if self._trace is not None else None

    def _keep_records(self, cell: Cell) -> None:
        records = {rank: done.record for rank, done in cell.done.items() if done.record is not None}
        if self._trace is not None and records:
            self._trace.cells.append(records)

    def _require_living(self, ranks: Iterable[int]) -> None:
        if self._workers is None:
            raise FourRanksError(
                "This world was stopped. Start a new one with `%ranks start` or fourranks.start()."
            )
        self._workers.poll(0)
        for rank in ranks:
            if cause := self._workers[rank].cause:
                message = f"Rank {rank} is gone: it {cause}. `%ranks restart` starts all ranks again."
                raise RankDied(rank, cause, message)

    def _checked_ranks(self, ranks: Sequence[int] | None) -> list[int]:
        chosen = list(range(self.world_size)) if ranks is None else sorted(set(ranks))
        unknown = [rank for rank in chosen if rank not in range(self.world_size)]
        if unknown:
            raise FourRanksError(
                f"This world has ranks 0-{self.world_size - 1}; there is no {name_ranks(unknown)}."
            )
        if not chosen:
            raise FourRanksError("No ranks were given.")
        return chosen


def start(
    world_size: int = 4,
    backend: str = "auto",
    timeout: float | None = None,
    device: str = "auto",
    start_method: str = "auto",
) -> RankGroup:
    """Start a world of ranks.

    Args:
        world_size: number of ranks.
        backend: "gloo", "nccl", or "auto": NCCL when there is a GPU for each rank, else Gloo.
        timeout: seconds that each cell or call may take, unless it says otherwise; unlimited by default.
        device: "cpu", "cuda", or "auto": GPUs with NCCL, CPUs with Gloo. With Gloo ranks can share GPUs.
        start_method: "fork", "spawn" (each rank imports torch anew: seconds, and more memory, but what fails
            in a forked process works), or "auto": "spawn" on macOS, else "fork".

    Raises:
        StartError: the world cannot be started; the message says why.
    """
    return RankGroup(world_size, backend, timeout, device, start_method)


def _chosen_start_method(start_method: str) -> str:
    if start_method not in ("auto", "fork", "spawn"):
        raise StartError(f"There is no start method {start_method!r}; choose auto, fork or spawn.")
    if start_method == "auto":  # macOS' own libraries fail in a forked process
        return "spawn" if sys.platform == "darwin" else "fork"
    return start_method


def run(
    function: Callable[..., Any],
    *args: Any,
    world_size: int = 4,
    backend: str = "auto",
    timeout: float | None = None,
    device: str = "auto",
    **kwargs: Any,
) -> list[Any]:
    """Start a world for one call of `function` on every rank; returns its results in rank order."""
    with start(world_size, backend, timeout, device) as group:
        return group.run(function, *args, **kwargs)


def _activity(worker: Worker, cell: Cell | None) -> Activity:
    rank, memory = worker.rank, worker.memory_bytes
    if worker.cause:
        return Activity(rank, worker.cause, memory)
    if cell is None or rank not in cell.transcript.ranks:
        return Activity(rank, "idle", memory)
    if rank in cell.done:
        return Activity(rank, "finished", memory)
    return busy_rank(rank, memory, cell.states.copy(), rank in cell.late)


def _checked_world_size(world_size: int) -> int:
    if not isinstance(world_size, int) or not 1 <= world_size <= MAX_WORLD_SIZE:
        raise StartError(f"A world has 1 to {MAX_WORLD_SIZE} ranks, not {world_size!r}.")
    return world_size
