"""Calls a function on many inputs, in processes that each have their own share of this machine's cores.

`grade` gives it submissions, and needs of a pool what `WorkerPool` says; `on_ray` has another one. A process
that dies costs a second try of what it was at, and no other input anything. All end when the one that started
them ends, however it does, with all that they have started.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import psutil

from autograder.sandbox.landlocked import FIRST_PROCESS

ENDING = 10.0  # seconds that a process may take to end by itself
_SPAWN = multiprocessing.get_context("spawn")


def shares(jobs: int, cores: Sequence[int]) -> list[tuple[int, ...]]:
    """Divide the cores equally, so that each job finds the same; a rest is not used."""
    size = len(cores) // jobs
    return [tuple(cores[job * size : (job + 1) * size]) or (cores[job % len(cores)],) for job in range(jobs)]


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    with contextlib.suppress(AttributeError):  # macOS does not tell
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Failed:
    """Stands in place of a result, with the reason.

    Attributes:
        exhausted: whether the input took more memory or time than there is, or brought processes down.
    """

    reason: str
    exhausted: bool = False


@dataclass(frozen=True)
class Running:
    """An input that is being worked on.

    Attributes:
        place: the node; "" is this machine.
    """

    input: Any
    seconds: float
    place: str = ""


class WorkerPool(Protocol):
    """Works on many inputs at a time, here or elsewhere, as long as this context lasts."""

    def results(self, inputs: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each input with its result, as they come; a `Failed` is why there is none."""

    def running(self) -> list[Running]:
        """Return the inputs that are being worked on."""

    def __enter__(self) -> WorkerPool: ...

    def __exit__(self, *_: object) -> None: ...


class Pool:
    """Processes of this machine that wait for inputs.

    Args:
        function: of a module, so that other processes find it. An error of it is a `Failed`.
        shares: for each process the cores that it may use, by number.
        limit: seconds after which a process is ended that has not finished with an input.
        memory: bytes that each process may take, besides what it has when it starts; 0 is no limit.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        shares: Sequence[tuple[int, ...]],
        limit: float = math.inf,
        memory: int = 0,
    ) -> None:
        self._limit = limit
        self._workers = [_PoolWorker(function, share, memory) for share in shares]

    def results(self, inputs: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each input with its result, as they come; one is taken when a process is free."""
        inputs = iter(inputs)
        for worker in self._workers:
            worker.give(next(inputs, None))
        while busy := [worker for worker in self._workers if worker.input is not None]:
            for worker in self._ready(busy):
                done, result = worker.input, worker.result()
                if result is not None:
                    worker.give(next(inputs, None))
                    yield done, result

    def running(self) -> list[Running]:
        """Return the inputs that are being worked on, and for how many seconds."""
        now = time.monotonic()
        return [
            Running(worker.input, now - worker.began) for worker in self._workers if worker.input is not None
        ]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.end()

    def _ready(self, busy: Sequence[_PoolWorker]) -> list[_PoolWorker]:
        """Return the workers with a result, or else the one whose time is over."""
        slowest = min(busy, key=lambda worker: worker.began)
        left = slowest.began + self._limit - time.monotonic()
        connections = [worker.connection for worker in busy]
        ready = connection.wait(connections, None if left == math.inf else max(0.0, left))
        return [worker for worker in busy if worker.connection in ready] or [slowest]


class _PoolWorker:
    """One process and what it is at."""

    def __init__(self, function: Callable[[Any], Any], share: tuple[int, ...], memory: int) -> None:
        self._function = function
        self._share = share
        self._memory = memory
        self.input: Any = None
        self.began = 0.0
        self._died = False
        self._start()

    def give(self, input: Any) -> None:
        """Begin with an input; None is nothing to do."""
        self.input, self.began, self._died = input, time.monotonic(), False
        self._send()

    def result(self) -> Any:
        """Return the result; None if the process died, and another one begins again."""
        if not self.connection.poll():
            self._replace()
            return Failed(f"it had not ended after {time.monotonic() - self.began:.0f} s", exhausted=True)
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            exitcode = self._replace()
        if self._died:
            return Failed(f"its process {_ending(exitcode)}, and so did the one before", exhausted=True)
        self._died = True
        self._send()
        return None

    def dismiss(self) -> None:
        """Let a process that has nothing to do end by itself, and so remove what it has made."""
        if self.input is None:
            self.connection.close()

    def end(self) -> None:
        """End the process, by itself if it was dismissed."""
        if self.connection.closed:
            self._process.join(ENDING)
        self.kill()

    def kill(self) -> None:
        """End the process, with all that it has started."""
        _kill(self._pid)
        self._process.join()
        self.connection.close()

    def _replace(self) -> int | None:
        """Start another process in place of this one; return how that ended."""
        self.kill()
        exitcode = self._process.exitcode
        self._start()
        return exitcode

    def _send(self) -> None:
        if self.input is not None:
            with contextlib.suppress(OSError):  # it has just died, which `result` will find out
                self.connection.send(self.input)

    def _start(self) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=_serve, args=(theirs, self._function, self._memory), daemon=True
        )
        with theirs, _as(self._share), _without_main_module():
            self._process.start()
        self._pid = self._process.pid


def _ending(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "was killed (when memory runs out, Linux does that: try fewer --jobs)"
    return f"ended by itself, with exit code {exitcode}"


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep what is started in here from importing this process's main module, maybe all of nbgrader."""
    names = vars(sys.modules["__main__"])
    file = names.pop("__file__", None)
    try:
        yield
    finally:
        if file is not None:
            names["__file__"] = file


@contextlib.contextmanager
def _as(share: tuple[int, ...]) -> Iterator[None]:
    """Give what is started in here these cores from its first moment on: libraries count them early.

    And no Ctrl-C, which is for the one who starts it.
    """
    cores = usable_cores()
    resource_tracker.ensure_running()  # it would be started with the first process, and let Ctrl-C in again
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        _use(share)
        yield
    finally:
        _use(cores)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def _use(cores: Iterable[int]) -> None:
    with contextlib.suppress(AttributeError):  # macOS
        os.sched_setaffinity(0, cores)


def _serve(inputs: connection.Connection, function: Callable[[Any], Any], memory: int) -> None:
    """Work on inputs, in a session of its own that no Ctrl-C reaches."""
    os.setsid()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came while this process started
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, handler)
    threading.Thread(target=_end_with, args=[multiprocessing.parent_process()], daemon=True).start()
    if memory:
        _limit_memory(memory)
    while (input := _next(inputs)) is not None:
        try:
            result = function(input)
        except MemoryError:
            result = Failed(f"it takes more than {memory >> 20 or 'all'} MiB of memory", exhausted=True)
        except Exception as error:
            result = Failed(f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # the parent has ended, which `_next` finds out
            inputs.send(result)


def _next(inputs: connection.Connection) -> Any:
    """Return the next input; None when there will be no more, in whichever way the other end was closed."""
    with contextlib.suppress(EOFError, OSError):
        return inputs.recv()
    return None


def _limit_memory(nbytes: int) -> None:
    """Let this process have so many bytes more than it has, of addresses: that is what Linux can limit."""
    most = psutil.Process().memory_info().vms + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _end_with(parent: BaseProcess) -> None:
    connection.wait([parent.sentinel])
    _kill(os.getpid())


def _kill(pid: int | None) -> None:
    """End a process and all that it has started, in whichever session."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [*_started_by(process), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def _started_by(process: psutil.Process) -> list[psutil.Process]:
    """List what a process has started, but for sandboxes that end with it.

    Their first process is there to end all others, which may multiply meanwhile, and to remove their files.
    """
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in process.children():
            if FIRST_PROCESS not in child.cmdline():
                found += [*_started_by(child), child]
    return found
