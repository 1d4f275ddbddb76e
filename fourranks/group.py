"""A group is the handle of a world, which is a set of ranks with one default process group: run code on it.

    group = fourranks.start(world_size=4)
    group.execute("x = torch.ones(2); dist.all_reduce(x)")
    group.pull("x")

The ranks are worker processes (`workers`), forked from a warm one (`zygote`). Whatever the code on them does,
a call of a `RankGroup` ends: with a result, or with an error of `errors` that says what happened, and the
world stays usable.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from . import checked
from .cell import Cell, Output
from .conductor import Conductor, chosen_start_method
from .errors import CellInterrupted, FourRanksError
from .live import Activity, RankStatus, busy_rank
from .nodes.choice import nodes_for
from .protocol.calls import Tracing
from .protocol.messages import Complete, Execute, Inspect, Launch, Pull, Push, Request, Run, Virtualize
from .protocol.parcel import Parcel
from .shipping import notebook_cells, packed_call, packed_variables
from .transcript import Transcript
from .views.drawable_trace import DrawableTrace
from .workers import Worker


class RankGroup:
    """One world of ranks. Use `fourranks.start` to make one.

    Attributes:
        backend: "gloo" or "nccl".
        device: "cpu" or "cuda", the device of the ranks' tensors.
        start_method: "fork" or "spawn".
    """

    def __init__(
        self,
        world_size: int = 4,
        backend: str = "auto",
        timeout: float | None = None,
        device: str = "auto",
        start_method: str = "auto",
        capacity: int | None = None,
        nodes: str | Sequence[str] | None = None,
        launcher: str | None = None,
        on: str | None = None,
    ) -> None:
        self.start_method = chosen_start_method(start_method)
        world_size = checked.world_size(world_size)
        self.capacity = max(world_size, checked.world_size(world_size if capacity is None else capacity))
        self._timeout = checked.timeout(timeout)
        self._trace: DrawableTrace | None = None
        where = nodes_for(nodes, launcher, on)
        self._conductor = Conductor(world_size, backend, device, self.start_method, self.capacity, where)
        _groups.add(self)
        self.backend = self._conductor.placement.backend
        self.device = self._conductor.placement.devices[0].partition(":")[0]

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
            Each has what the ranks showed before as its `transcript`.
        """
        chosen = checked.ranks(ranks, self.world_size)
        request = Execute(checked.source(source, "A cell"), execution_count, self._tracing)
        return self._conduct(dict.fromkeys(chosen, request), timeout, on_output).transcript

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function with the same arguments on every rank; returns its results in rank order.

        The function is sent by value, so it may come from a cell. Inside it `rank`, `world_size`, `device`,
        `torch` and `dist` are there. Its output is printed here when it is over. Errors are those of
        `execute`.
        """
        parcel = packed_call(checked.function(function), args, kwargs)
        return self._call(dict.fromkeys(range(self.world_size), parcel), None)

    def map(
        self,
        function: Callable[..., Any],
        inputs: Sequence[tuple[Any, ...]],
        timeout: float | None = None,
        on_output: Output | None = None,
    ) -> list[Any]:
        """Call a function on every rank with that rank's own arguments; returns its results in rank order.

        Args:
            function: as for `run`.
            inputs: one tuple of arguments for each rank, in rank order.
            timeout: seconds after which the call is stopped.
            on_output: called with the growing transcript while the function runs. Without it the output is
                printed here when the function is over.
        """
        function = checked.function(function)
        each_rank = checked.inputs(inputs, self.world_size)
        parcels = {rank: packed_call(function, args, {}) for rank, args in enumerate(each_rank)}
        return self._call(parcels, timeout, on_output)

    def push(self, ranks: Sequence[int] | None = None, /, **variables: Any) -> None:
        """Set variables on the ranks (all by default)."""
        request = Push(packed_variables(variables), notebook_cells())
        self._conduct(dict.fromkeys(checked.ranks(ranks, self.world_size), request), None)

    def pull(self, expression: str, ranks: Sequence[int] | None = None) -> list[Any]:
        """Return the value of a variable, or of an expression, on each of these ranks, in their order.

        By default on all, in rank order.
        """
        chosen = checked.ranks(ranks, self.world_size)
        request = Pull(checked.source(expression, "An expression"))
        cell = self._conduct(dict.fromkeys(chosen, request), None)
        return [cell.value(rank) for rank in chosen]

    def ask(self, question: Complete | Inspect) -> Any:
        """Return rank 0's answer to a question about its variables; None if it cannot give one at once."""
        return self._conductor.ask(question)

    def run_program(
        self,
        name: str,
        arguments: Sequence[str] = (),
        is_module: bool = False,
        backend: str = "auto",
        on_output: Output | None = None,
    ) -> None:
        """Run a program on all ranks as torchrun would; stop the world after it, which can run nothing else.

        Args:
            name: the path of a script, or the name of a module.
            arguments: of the program, for `sys.argv`.
            is_module: whether it is a module, as for `python -m`.
            backend: of its default process group; "auto" for the one that it asks for itself.
            on_output: called with the transcript again and again, and may `take` from it.

        Raises:
            Errors as of `execute`. A rank that has left with an exit status of failure has raised SystemExit.
        """
        request = Launch(name, tuple(arguments), is_module, backend)
        requests = dict.fromkeys(range(self.world_size), request)
        _, error = self._conductor.conduct(requests, None, on_output, is_last=True)
        if error is not None:
            raise error

    @contextlib.contextmanager
    def trace(self, profile: bool = False, values: str = "") -> Iterator[DrawableTrace]:
        """Record every collective and point-to-point call of the cells and calls inside the block.

        Args:
            profile: let torch.profiler run on the ranks, too; `to_chrome` of the trace shows what it sees.
            values: name of a variable on the ranks, a small tensor; `steps` of the trace shows what it holds.
        """
        if self._trace is not None:
            raise FourRanksError("A trace of this world is being recorded already; traces do not nest.")
        self._trace = DrawableTrace(self.world_size, Tracing(profile, values), formed=self._conductor.formed)
        try:
            yield self._trace
        finally:
            self._trace.clock_uncertainty = self._conductor.clock_uncertainty
            self._trace = None

    # --- life and death ----------------------------------------------------------------------------------

    def status(self) -> list[RankStatus]:
        """Return the process, device, state and memory of each rank."""
        workers, placement = self._conductor.workers, self._conductor.placement
        if workers is None:
            return []
        workers.look()
        for worker in workers.living():
            worker.note_memory()
        return [
            RankStatus(
                worker.rank,
                worker.pid,
                placement.devices[worker.rank],
                self.backend,
                worker.cause or ("busy" if self.busy else "idle"),
                worker.memory_bytes,
                placement.gpu_names[worker.rank],
                worker.gpu_bytes,
                placement.node_of(worker.rank),
            )
            for worker in workers.all
        ]

    def snapshot(self) -> list[Activity]:
        """Return what each rank is doing now; any thread may ask while another one runs a cell."""
        cell, workers = self._conductor.cell, self._conductor.workers
        if workers is None:
            return []
        if cell is None:  # else its thread does so
            workers.notice_deaths()
            for worker in workers.living():
                worker.note_memory()
        return [replace(_activity(worker, cell), node=worker.zygote.node) for worker in workers.all]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self._conductor.world_size

    @property
    def ranks_per_gpu(self) -> int:
        """Number of ranks on the GPU that has most of them; 0 on CPUs."""
        return self._conductor.placement.ranks_per_gpu

    @property
    def pids(self) -> list[int]:
        """Process ID of each rank; empty when the world is stopped."""
        workers = self._conductor.workers
        return [] if workers is None else [worker.pid for worker in workers.all]

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that the ranks are on, in rank order; empty if that is this machine alone."""
        return list(dict.fromkeys(self._conductor.placement.nodes))

    @property
    def missing_nodes(self) -> Mapping[str, str]:
        """Why each node that was lost could not be reached again, by its name."""
        return self._conductor.nodes.missing

    @property
    def formed_anew(self) -> int:
        """How often the default process group was formed again since the ranks were started."""
        return self._conductor.formed_anew

    @property
    def running(self) -> bool:
        """Whether the world has been started and not stopped."""
        return self._conductor.workers is not None

    @property
    def busy(self) -> bool:
        """Whether a cell or a call runs on this world now."""
        return self._conductor.cell is not None

    def interrupt(self) -> None:
        """Stop the cell that another thread runs on this world, as the notebook's interrupt button does."""
        self._conductor.interrupt()

    def pass_on(self, number: int) -> None:
        """Send a signal to all ranks of the cell that runs, for instance from a signal handler.

        A cell that has not ended 30 seconds later is interrupted. Without one, the next cell's ranks get it.
        """
        self._conductor.pass_on(number)

    def resize(self, world_size: int) -> None:
        """Make this a world of so many ranks, up to its capacity.

        The default process group is formed again. Ranks that are there already keep their variables, also
        those that a smaller world leaves in reserve.

        Raises:
            StartError: the ranks could not form a group; the world has ended.
        """
        self._conductor.resize(checked.world_size(world_size))

    def reserve(self, world_size: int) -> None:
        """Start the ranks ahead that a later `resize` to so many needs; it does not wait for them."""
        self._conductor.reserve(checked.world_size(world_size))

    def virtualize(self, rank: int, world_size: int) -> None:
        """Make the only rank one of a larger world whose other ranks are not there, as `run_virtual` does."""
        self._conduct({0: Virtualize(rank, world_size)}, None)

    def restart(self) -> None:
        """Replace all ranks by fresh ones; their variables are gone, and a cell of another thread ends."""
        self._conductor.restart()

    def stop(self) -> None:
        """End all ranks and everything that they started; a cell of another thread ends first."""
        self._conductor.end()

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __del__(self) -> None:
        """End a world that nothing refers to any more: a notebook's cell may be run again and again."""
        try:  # noqa: SIM105  contextlib may be gone when Python ends
            self.stop()
        except Exception:
            pass

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<RankGroup: {self.world_size} ranks, {self.backend}, {state}>"

    # --- internals ---------------------------------------------------------------------------------------

    def _call(
        self, parcels: dict[int, Parcel], timeout: float | None, on_output: Output | None = None
    ) -> list[Any]:
        cells = notebook_cells()
        requests = {rank: Run(parcel, cells, self._tracing) for rank, parcel in parcels.items()}
        try:
            cell = self._conduct(requests, timeout, on_output)
        except (FourRanksError, CellInterrupted) as error:
            if on_output is None and error.transcript is not None:
                _print(error.transcript)
            raise
        if on_output is None:
            _print(cell.transcript)
        return [cell.value(rank) for rank in sorted(requests)]

    def _conduct(
        self, requests: Mapping[int, Request], timeout: float | None, on_output: Output | None = None
    ) -> Cell:
        """Run one request a rank to its end, whatever that is, and leave the world usable."""
        seconds = self._timeout if timeout is None else checked.timeout(timeout)
        cell, error = self._conductor.conduct(requests, seconds, on_output)
        self._keep_records(cell)
        if error is not None:
            raise error
        return cell

    @property
    def _tracing(self) -> Tracing | None:
        return self._trace.tracing if self._trace is not None else None

    def _keep_records(self, cell: Cell) -> None:
        records = {rank: done.record for rank, done in cell.done.items() if done.record is not None}
        if self._trace is not None and records:
            self._trace.cells.append(records)


_groups: WeakSet[RankGroup] = WeakSet()
os.register_at_fork(after_in_child=_groups.clear)  # a child's end is not that of the ranks


@atexit.register
def _stop_all() -> None:
    """Stop the worlds that there still are, so that their ranks write out their files."""
    for group in list(_groups):
        with contextlib.suppress(Exception):  # the process ends: nothing can be reported
            group.stop()


def start(
    world_size: int = 4,
    backend: str = "auto",
    timeout: float | None = None,
    device: str = "auto",
    start_method: str = "auto",
    capacity: int | None = None,
    nodes: str | Sequence[str] | None = None,
    launcher: str | None = None,
    on: str | None = None,
) -> RankGroup:
    """Start a world of ranks.

    Args:
        world_size: number of ranks.
        backend: "gloo", "nccl", or "auto": FOURRANKS_BACKEND of the environment, else NCCL when
            there is a GPU for each rank, else Gloo.
        timeout: seconds that each cell or call may take, unless it says otherwise; unlimited by default.
        device: "cpu", "cuda", or "auto": GPUs with NCCL, CPUs with Gloo. With Gloo ranks can share GPUs, with
            NCCL from its version 2.30 on.
        start_method: "fork", "spawn" (each rank imports torch again: seconds, and more memory, but what fails
            in a forked process works), or "auto": "spawn" on macOS, else "fork".
        capacity: the largest size that `resize` can give the world later; `world_size` by default.
        nodes: machines that the ranks are spread over, "hostA,hostB" or a list; "hostA:4" has at most four of
            them, "localhost" is this machine, "slurm" stands for the nodes of the allocation, and () for this
            machine alone. By default FOURRANKS_NODES of the environment. See docs/clusters.md.
        launcher: the way to reach them: "ssh", "srun", or a command with {node} for the name.
        on: "ray" for the nodes of the Ray cluster that RAY_ADDRESS names, or to which this machine belongs.

    Raises:
        StartError: the world cannot be started; the message says why.
    """
    return RankGroup(world_size, backend, timeout, device, start_method, capacity, nodes, launcher, on)


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


def _print(transcript: Transcript) -> None:
    if text := str(transcript):
        print(text)


def _activity(worker: Worker, cell: Cell | None) -> Activity:
    rank, memory = worker.rank, worker.memory_bytes
    if worker.cause:
        return Activity(rank, worker.cause, memory)
    if cell is None or rank not in cell.transcript.ranks:
        return Activity(rank, "idle", memory)
    if rank in cell.done:
        return Activity(rank, "finished", memory)
    return busy_rank(rank, memory, cell.states.copy(), rank in cell.late, cell.began)
