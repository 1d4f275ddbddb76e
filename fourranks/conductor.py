"""The conductor of a world starts its ranks, runs one cell at a time, gets ranks back in step, and ends them.

Any thread may ask for that, whatever the code on the ranks does meanwhile. Readers call `group`.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .cell import Cell, Output, Stop
from .deferred_interrupt import deferred_interrupt
from .ending import error_of
from .errors import Aftermath, CellInterrupted, CellTimeout, FourRanksError, RankDied, StartError
from .naming import name_ranks, sentence_case
from .nodes.this_machine import Nodes
from .placement import Placement, preferred_backend
from .protocol.messages import Complete, Form, Inspect, Request
from .workers import Workers

ANSWER_PATIENCE = 0.3  # seconds that a reader waits after pressing Tab
FORM_TIMEOUT = 60.0  # seconds to connect all ranks; 128 ranks on two cores need a few
FORM_ANEW_TIMEOUT = 15.0  # the same when they have been connected before; then all are started again
PATIENCE_WITH_OTHERS = 10.0  # seconds that a program's other ranks get when one has failed
IMPORT_TIMEOUT = 5.0  # seconds more for each rank that has to import torch first


class Conductor:
    """Owns the processes of one world and runs one cell at a time on them.

    Args:
        world_size: number of ranks.
        backend: "gloo", "nccl" or "auto".
        device: "cpu", "cuda" or "auto".
        start_method: "fork" or "spawn".
        capacity: the largest size that `resize` can give the world.
        nodes: where its ranks start.

    Attributes:
        world_size: number of ranks.
        nodes: where ranks start.
        placement: the backend, and the node and the device of each rank.
        workers: the processes; None once the world has ended.
        cell: the one that runs.
        formed: when the default process group was formed, for the first time and again.
        formed_anew: how often it was formed again since the ranks were started.
    """

    def __init__(
        self, world_size: int, backend: str, device: str, start_method: str, capacity: int, nodes: Nodes
    ) -> None:
        self.world_size, self.start_method, self.capacity = world_size, start_method, capacity
        self.nodes = nodes
        self.placement = nodes.place(world_size, preferred_backend(backend, device), device)
        self.workers: Workers | None = None
        self.cell: Cell | None = None
        self.formed: list[float] = []
        self.formed_anew = 0
        self._lock = threading.Lock()  # held by the thread that runs a cell, restarts or ends the world
        self._gate = threading.Lock()  # held while a thread restarts or ends it: no cell begins
        self._ending = False  # a thread wants to restart or end: the cell is not worth rescuing
        self._interrupt_asked = False
        self._signals: collections.deque[int] = collections.deque()  # for the ranks of the cell that runs
        try:
            self._start()
        except BaseException:
            nodes.release()
            raise

    def conduct(
        self,
        requests: Mapping[int, Request],
        timeout: float | None,
        on_output: Output | None = None,
        is_last: bool = False,
    ) -> tuple[Cell, FourRanksError | CellInterrupted | None]:
        """Run one request a rank to its end, leaving the world usable; returns the error to raise, if any.

        Args:
            requests: one for each rank that takes part.
            timeout: seconds that they may take.
            on_output: called with the growing transcript.
            is_last: whether nothing runs on this world afterwards: then it is not made usable again.
        """
        with deferred_interrupt() as came:
            with self._gate:
                begun = self._lock.acquire(blocking=False)
            if not begun:
                raise FourRanksError("The ranks are busy with another cell; wait for it or interrupt it.")
            try:
                workers = self._require_living(requests)
                self._interrupt_asked = False
                self.cell = cell = Cell(workers, requests, on_output, self._signals)
                try:
                    return cell, self._run(cell, workers, timeout, came, is_last)
                except BaseException:  # of `on_output`, or of a signal handler
                    cell.show_no_more()
                    if is_last:
                        self._free(cell, Stop("interrupt"), came)
                    else:
                        self._recover(cell, workers, Stop("interrupt"), came)
                    raise
            finally:
                self.cell = None
                self._lock.release()

    @property
    def clock_uncertainty(self) -> float:
        """Seconds by which the times of two ranks may be wrong against each other: their clocks differ."""
        return self.workers.clock_uncertainty if self.workers is not None else 0.0

    def ask(self, question: Complete | Inspect) -> Any:
        """Return rank 0's answer to a question about its variables; None if it cannot give one at once."""
        with deferred_interrupt():
            if not self._lock.acquire(blocking=False):  # a cell runs; its thread reads all messages
                return None
            try:
                return self.workers and self.workers.ask(0, question, ANSWER_PATIENCE)
            finally:
                self._lock.release()

    def interrupt(self) -> None:
        """Stop the cell that another thread runs."""
        self._interrupt_asked = True

    def pass_on(self, number: int) -> None:
        """Have the ranks of the cell that runs, or of the next one, get a signal."""
        self._signals.append(number)

    def restart(self) -> None:
        """Replace all ranks by fresh ones; a cell of another thread ends."""
        with self._alone():
            self._restart()

    def resize(self, world_size: int) -> None:
        """Make this a world of so many ranks, in a default process group of their own.

        Ranks that are there already keep their variables. After an error the world has ended.
        """
        placement = self._placement_of(world_size)
        with self._alone() as interrupted:
            workers = self._require_living(())
            try:
                workers.resize(placement)
                self.placement, self.world_size = placement, world_size
                self._form(workers, interrupted)
            except BaseException:
                self._end()
                raise

    def reserve(self, world_size: int) -> None:
        """Start the ranks that a world of so many would need besides."""
        placement = self._placement_of(world_size)
        with self._alone():
            self._require_living(()).reserve(placement)

    def end(self) -> None:
        """End all ranks and everything that they started; a cell of another thread ends first."""
        with self._alone():
            self._end()
            self.nodes.release()

    # --- life --------------------------------------------------------------------------------------------

    def _placement_of(self, world_size: int) -> Placement:
        """Return where the ranks of this world are if it has so many.

        Raises:
            StartError: they are more than its capacity.
        """
        if world_size > self.capacity:
            raise StartError(f"This world was started with room for {self.capacity} ranks, not {world_size}.")
        if self.placement.nodes:
            raise StartError("A world over several nodes keeps its number of ranks: start a new one.")
        return self._placed(world_size)

    def _placed(self, world_size: int) -> Placement:
        backend, device = self.placement.backend, self.placement.devices[0].partition(":")[0]
        return self.nodes.place(world_size, backend, device)

    def _start(self) -> None:
        self.formed_anew = -1
        with deferred_interrupt() as interrupted:
            zygotes = self.nodes.zygotes()
            self.workers = Workers(self.placement, zygotes, self.start_method, self.capacity)
            try:
                self._form(self.workers, interrupted)
            except BaseException:
                self._end()
                raise

    def _restart(self) -> None:
        self._end()
        if self.placement.nodes:  # some may be lost, or back
            self.placement = self._placed(self.world_size)
        self._start()

    def _end(self) -> None:
        workers, self.workers = self.workers, None
        if workers is not None:
            workers.kill()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[Callable[[], bool]]:
        """Make the thread that runs a cell leave it, and let no other one begin meanwhile."""
        with deferred_interrupt() as interrupted, self._gate:
            self._ending = True
            try:
                with self._lock:
                    yield interrupted
            finally:
                self._ending = False

    def _form(self, workers: Workers, interrupted: Callable[[], bool]) -> None:
        """Form the default process group, again if there was one."""
        self.formed.append(time.perf_counter())
        self.formed_anew += 1
        form = Form(len(self.formed), self.world_size)
        cell = Cell(workers, dict.fromkeys(range(self.world_size), form))
        stop = cell.run(self._form_timeout, interrupted)
        error = error_of(workers, cell, stop, cell.errors(), Aftermath.INTACT)
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, CellTimeout):
            raise StartError(
                "The ranks could not connect to each other in time. `fourranks doctor` looks for what keeps "
                f"them apart.\n{error.whereabouts}"
            )
        if error is not None:
            raise StartError(
                "The ranks could not form a process group. `fourranks doctor` looks for what keeps them from "
                f"it.\n{error}"
            ) from None

    @property
    def _form_timeout(self) -> float:
        if self.formed_anew and self.placement.backend == "gloo":
            return FORM_ANEW_TIMEOUT  # NCCL takes longer on a GPU that others use, too
        imports = IMPORT_TIMEOUT * self.world_size if self.start_method == "spawn" else 0
        return FORM_TIMEOUT + imports

    # --- one cell ----------------------------------------------------------------------------------------

    def _run(
        self, cell: Cell, workers: Workers, timeout: float | None, came: Callable[[], bool], is_last: bool
    ) -> FourRanksError | CellInterrupted | None:
        def interrupted() -> bool:
            asked, self._interrupt_asked = self._interrupt_asked, False
            return came() or asked or self._ending

        if is_last:
            cell.patience_with_others, cell.is_program = PATIENCE_WITH_OTHERS, True
        stop = cell.run(timeout, interrupted)
        errors = cell.errors()
        given_up = cell.look_back() if errors and (stop is None or stop.reason == "raised") else None
        wrong = stop or errors or cell.left_group or cell.broke_group
        aftermath = Aftermath.INTACT
        if is_last:
            self._free(cell, stop, interrupted)
        elif wrong:
            aftermath = self._recover(cell, workers, stop, interrupted)
        for rank, done in cell.done.items():
            workers[rank].gpu_bytes = done.gpu_bytes
        error = error_of(workers, cell, stop, errors, aftermath, given_up)
        if is_last:
            cell.leave(interrupted)
        return error

    def _recover(
        self, cell: Cell, workers: Workers, stop: Stop | None, interrupted: Callable[[], bool]
    ) -> Aftermath:
        """Bring all ranks back to idle and their process groups back in step."""
        if self._ending:
            return Aftermath.ENDED
        cut = self._free(cell, stop, interrupted)
        if cell.pending:
            return self._replace()
        if len(workers.living()) < self.world_size:  # some may have died earlier
            return Aftermath.DEAD
        in_step = cell.in_step()  # asked in any case: an answer means that the rank has done its cutting
        intact = in_step and not cut and not cell.broke_group
        if intact and not cell.left_group:
            return Aftermath.INTACT
        try:
            self._form(workers, interrupted)
            return Aftermath.INTACT if intact else Aftermath.FORMED_ANEW
        except (StartError, KeyboardInterrupt):
            return self._replace()

    def _replace(self) -> Aftermath:
        """Start all ranks again; where that fails, the cell's own error is told all the same."""
        try:
            self._restart()
        except StartError:  # `%ranks restart` says why: an ended rank may spoil a shared GPU for a while
            return Aftermath.GONE
        return Aftermath.RESTARTED

    def _free(self, cell: Cell, stop: Stop | None, interrupted: Callable[[], bool]) -> bool:
        """Bring ranks back from a cell that was stopped; True if process groups had to be cut for it."""
        return stop is not None and cell.free(stop.reason in ("deadlock", "died"), interrupted)

    def _require_living(self, ranks: Iterable[int]) -> Workers:
        """Return the processes of the world, if those of these ranks live."""
        if self.workers is None:
            raise FourRanksError(
                "This world was stopped. Start a new one with `%ranks start` or fourranks.start()."
            )
        self.workers.look()
        gone = {rank: cause for rank in ranks if (cause := self.workers[rank].cause)}
        if gone:
            rank, cause = next(iter(gone.items()))
            are = "is gone: it" if len(gone) == 1 else f"are gone: rank {rank}"
            named = sentence_case(name_ranks([*gone]))
            raise RankDied(rank, cause, f"{named} {are} {cause}. `%ranks restart` starts all ranks again.")
        return self.workers


def chosen_start_method(start_method: str) -> str:
    """Return "fork" or "spawn" for what the reader asked for.

    Raises:
        StartError: there is no such start method.
    """
    if start_method not in ("auto", "fork", "spawn"):
        raise StartError(f"There is no start method {start_method!r}; choose auto, fork or spawn.")
    if start_method == "auto":  # macOS' own libraries fail in a forked process
        return "spawn" if sys.platform == "darwin" else "fork"
    return start_method
