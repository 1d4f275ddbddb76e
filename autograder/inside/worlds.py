"""The ranks that a student's function is called on, kept from call to call while all goes well."""

from __future__ import annotations

import linecache
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import fourranks
from autograder.inside.call_on_rank import DRIVERS, StudentError, call_on_rank
from autograder.inside.forbidden import hide
from autograder.inside.runs import DEADLOCK, DIED, RAISED, TIMED_OUT, Ran, RunFailed
from fourranks import zygote
from fourranks.aftermath import Aftermath
from fourranks.errors import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, StartError
from fourranks.transcript import Transcript


class Worlds:
    """A world for each number of ranks and each backend, started when it is first needed.

    Args:
        entry: what each rank is to call, with the pickled function and the rank's request.

    Attributes:
        transcript: what the ranks printed in the last run; None before it.
    """

    def __init__(self, entry: Callable[..., pickle.PickleBuffer] = call_on_rank) -> None:
        self._entry = entry
        self._worlds: dict[tuple[int, str], fourranks.RankGroup] = {}
        self._forbidden: Sequence[str] = ()
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
        # Whatever a failed call left in these ranks must not reach the next one.
        self._worlds.pop((len(requests), backend)).stop()
        failure.calls = trace.calls
        raise failure

    def pids(self, world_size: int, backend: str) -> Sequence[int]:
        """Return the process ID of each rank of a world that has run."""
        return self._worlds[world_size, backend].pids

    def release(self) -> None:
        """End all ranks, of all worlds at the same time: most of it is Linux taking back their memory."""
        ending = list(self._worlds.values())
        self._worlds.clear()
        with ThreadPoolExecutor(len(ending) or 1) as pool:
            list(pool.map(fourranks.RankGroup.stop, ending))

    def _world(self, requests: Sequence[bytes], backend: str) -> fourranks.RankGroup:
        key = (len(requests), backend)
        if key not in self._worlds:
            if any(DRIVERS in request for request in requests):  # drivers train, plain functions do not
                zygote.shared().import_more()
            self._worlds[key] = fourranks.start(world_size=len(requests), backend=backend)
            if self._forbidden:
                self._worlds[key].run(hide, self._forbidden)
        return self._worlds[key]

    def _keep(self, transcript: Transcript) -> None:
        self.transcript = transcript


def _failure(error: FourRanksError, timeout: float) -> RunFailed:
    match error:
        case RankError():
            return _raised(error)
        case DeadlockError():
            return RunFailed(DEADLOCK, _event(error))
        case RankDied():
            return RunFailed(DIED, _event(error))
        case CellTimeout():
            where = "\n".join(_event(error).splitlines()[1:])
            return RunFailed(TIMED_OUT, f"no answer from all ranks within {timeout:g} s\n{where}")
        case StartError():
            raise error  # no fault of the student's
        case _:
            return RunFailed(RAISED, str(error), type(error).__name__)


def _event(error: FourRanksError) -> str:
    """What happened, without what became of the world: a check does not keep it."""
    text = str(error)
    for aftermath in Aftermath:
        text = text.removesuffix(aftermath.value).rstrip()
    return text


def _raised(error: RankError) -> RunFailed:
    rank, first = min(error.errors.items())
    if first.name != StudentError.__name__:
        return RunFailed(RAISED, f"rank {rank} raised {first.name}: {first.message}", first.name)
    name, file, line, message = first.message.split("\n", 3)
    code = linecache.getline(file, int(line)).strip()
    where = f" in line {line}{f' ({code})' if code else ''}" if int(line) else ""
    return RunFailed(RAISED, f"rank {rank} raised {name}{where}{': ' if message else ''}{message}", name)
