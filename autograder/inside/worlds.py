"""The ranks that a student's function is called on, kept from call to call while all goes well."""

from __future__ import annotations

import contextlib
import linecache
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence

import fourranks
from autograder.inside.call_on_rank import COMPILING, call_on_rank
from autograder.inside.forbidden import hide
from autograder.inside.runs import DEADLOCK, DIED, RAISED, TIMED_OUT, Ran, RunFailed
from fourranks import zygote
from fourranks.errors import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, StartError
from fourranks.protocol.remote_error import RemoteError
from fourranks.transcript import Transcript

CAPACITY = 8  # ranks that a world can grow to; few cases need more, and each rank's share of a board is 80 kB
USUAL_MOST = 5  # ranks: up to so many the next one is started while these work, as cases mostly grow by one
END_PATIENCE = 1.0  # seconds for what ranks have started to be gone; it has been killed with them
_ENTRY = call_on_rank.__module__  # each rank would import it at its first call


class Worlds:
    """A world for each backend, started when it is first needed, and resized to what each run needs.

    Args:
        entry: called on each rank, with the pickled function and the rank's request.

    Attributes:
        capacity: ranks that a new world has room for.
        transcript: the ranks' output in the last run; None before it.
    """

    def __init__(self, entry: Callable[..., pickle.PickleBuffer] = call_on_rank) -> None:
        self._entry = entry
        self._worlds: dict[str, fourranks.RankGroup] = {}
        self._forbidden: Sequence[str] = ()
        self.capacity = CAPACITY
        self.transcript: Transcript | None = None

    def forbid(self, libraries: Sequence[str]) -> None:
        """Take these libraries away from ranks that are started from now on."""
        self._forbidden = libraries

    def run(self, pickled: bytes, requests: Sequence[bytes], backend: str, timeout: float) -> Ran:
        """Call a function, as `by_value` has pickled it, on one rank for each of `requests`.

        Raises:
            RunFailed: the ranks are without an answer, after `timeout` seconds at the latest.
        """
        world = self._world(requests, backend)
        self.transcript = None
        with world.trace() as trace:
            try:
                function = pickle.PickleBuffer(pickled)
                inputs = [(function, pickle.PickleBuffer(request)) for request in requests]
                answers = world.map(self._entry, inputs, timeout, self._keep)
                return Ran(answers, trace.calls)
            except FourRanksError as error:
                failure = _failure(error, timeout)
        # Nothing that a failed call left in these ranks may reach the next one.
        self._end(backend)
        failure.calls = trace.calls
        raise failure

    def pids(self, backend: str) -> Sequence[int]:
        """Return the process ID of each rank of the last run."""
        return self._worlds[backend].pids

    def release(self) -> None:
        """End all ranks."""
        for backend in list(self._worlds):
            self._end(backend)

    def _world(self, requests: Sequence[bytes], backend: str) -> fourranks.RankGroup:
        """Return the world for these requests."""
        world = self._worlds.get(backend)
        if world is not None and world.world_size == len(requests):
            return world
        compiles = any(driver in request for request in requests for driver in COMPILING)
        zygote.shared().import_modules(_ENTRY, *[zygote.COMPILER] * compiles)
        world = self._sized(len(requests), backend)
        if self._forbidden:
            world.run(hide, self._forbidden)
        if len(requests) < min(USUAL_MOST, world.capacity):
            world.reserve(len(requests) + 1)
        return world

    def _sized(self, world_size: int, backend: str) -> fourranks.RankGroup:
        """Resize the world that there is, or start another one."""
        if backend in self._worlds:
            groups = self._worlds[backend].pids
            with contextlib.suppress(StartError):  # no room for so many, or a rank has died meanwhile
                self._worlds[backend].resize(world_size)
                return self._worlds[backend]
            self._end(backend, groups)
        capacity = max(world_size, self.capacity)
        self._worlds[backend] = fourranks.start(world_size, backend, capacity=capacity, nodes=())
        return self._worlds[backend]

    def _end(self, backend: str, groups: Sequence[int] = ()) -> None:
        """End a world's ranks and what they have started, which may still be closing connections.

        Args:
            groups: the ranks' process groups, if the world does not know them any more.
        """
        world, deadline = self._worlds.pop(backend), time.monotonic() + END_PATIENCE
        groups = groups or world.pids
        world.stop()
        while any(map(_is_there, groups)) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _keep(self, transcript: Transcript) -> None:
        self.transcript = transcript


def _is_there(process_group: int) -> bool:
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True


def _failure(error: FourRanksError, timeout: float) -> RunFailed:
    match error:
        case RankError():
            return _raised(error.errors)
        case DeadlockError():
            waits = error.scene.waits.values() if error.scene is not None else ()
            return RunFailed(DEADLOCK, error.explanation, stuck_in=[call.op for call in waits])
        case RankDied():
            return RunFailed(DIED, error.explanation)
        case CellTimeout():
            return _timed_out(error, f"no answer from all ranks within {timeout:g} s")
        case StartError():
            raise error  # no fault of the student's
        case _:
            return RunFailed(RAISED, str(error), type(error).__name__)


def _timed_out(error: CellTimeout, what: str) -> RunFailed:
    """Tell where the ranks were, or what one has raised: then others may have waited for it."""
    if not error.errors:
        return RunFailed(TIMED_OUT, f"{what}\n{error.whereabouts}")
    failure = _raised(error.errors)
    failure.reason, failure.message = TIMED_OUT, f"{failure.message}\n{what}"
    return failure


def _raised(errors: Mapping[int, RemoteError]) -> RunFailed:
    rank, first = min(errors.items())
    match first.data:
        case (str(name), str(file), int(line), str(message), bool(no_such_rank)):
            code = linecache.getline(file, line).strip() if file in linecache.cache else ""  # no other file's
            where = f" in line {line}{f' ({code})' if code else ''}" if line else ""
            what = f"rank {rank} raised {name}{where}{': ' if message else ''}{message}"
            return RunFailed(RAISED, what, name, no_such_rank=no_such_rank)
    return RunFailed(RAISED, f"rank {rank} raised {first.name}: {first.message}", first.name)
