"""The worker processes of one world, one a rank, as the notebook sees them.

Starts them from the zygote, carries messages both ways, reads what C code and child processes print, and
notices when one dies. Knows nothing of cells or process groups.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from . import zygote
from .protocol import board
from .protocol.messages import LOOPBACK, Answer, Channel, Complete, Inspect, Settings, Stream

_CHUNK = 1 << 16
_STOPPED = "was stopped"  # the cause of an end that the notebook wanted
END_PATIENCE = 5.0  # seconds for killed processes to be reaped; the kernel needs milliseconds
KILL_LASTS = 10.0  # seconds that a process with much memory may take to end when Linux kills it


@dataclass(eq=False)
class Worker:
    """One worker process."""

    rank: int
    pid: int
    channel: Channel
    pipes: dict[int, str]  # file descriptor -> "stdout" or "stderr"
    cause: str | None = None  # how it ended, once it has
    memory_bytes: int = 0
    gpu_bytes: int = 0  # of the rank's tensors on its GPU, when it last answered
    decoders: dict[int, Any] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.cause is None

    @property
    def died(self) -> bool:
        """Whether the process ended without having been stopped by the notebook."""
        return self.cause not in (None, _STOPPED)

    def interrupt(self) -> None:
        """Interrupt the process from outside: C code may keep its threads from hearing of a message."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def note_memory(self) -> None:
        """Look at the resident memory of the process; what was seen last stays known when it has ended."""
        with contextlib.suppress(psutil.Error):
            self.memory_bytes = psutil.Process(self.pid).memory_info().rss


class Workers:
    """All worker processes of one world."""

    def __init__(self, backend: str, devices: Sequence[str], start_method: str) -> None:
        self._zygote = zygote.shared()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._zygote.channel, selectors.EVENT_READ)
        self._memory_kills = MemoryKills()
        self.all: list[Worker] = []
        try:
            self._fork_all(backend, devices, start_method)
        except BaseException:
            self.kill()
            raise

    def __getitem__(self, rank: int) -> Worker:
        return self.all[rank]

    def living(self) -> list[Worker]:
        return [worker for worker in self.all if worker.alive]

    def send(self, rank: int, message: Any) -> None:
        """Send a message to one rank; a dead rank ignores it."""
        if self.all[rank].alive:
            self.all[rank].channel.send(message)
            self._select(self.all[rank].channel)

    def poll(self, timeout: float) -> list[tuple[int, Any]]:
        """Messages that arrive within `timeout` seconds, as (rank, message); returns at the first ones."""
        events = self._selector.select(timeout)
        arrived = []
        for worker in {id(key.data): key.data for key, _ in events if key.data is not None}.values():
            arrived += self._receive(worker)
        if not events or any(key.fileobj is self._zygote.channel for key, _ in events):
            self.notice_deaths()
        return arrived

    def notice_deaths(self) -> None:
        """See whose process has ended; any thread may ask."""
        ends = [(worker, self._zygote.death(worker.pid)) for worker in self.living()]
        out_of_memory = self._memory_kills.recent()
        for worker, status in ends:
            if status is not None:
                worker.cause = _describe(status, out_of_memory)
            elif not self._zygote.alive:
                worker.cause = "was ended, together with the process that ranks are forked from"

    def ask(self, rank: int, question: Complete | Inspect, patience: float) -> Any:
        """A rank's answer to a question about its variables; None if none comes within `patience` seconds."""
        self.send(rank, question)
        deadline = time.monotonic() + patience
        while self[rank].alive and (left := deadline - time.monotonic()) > 0:
            for _, message in self.poll(left):
                if isinstance(message, Answer) and message.number == question.number:
                    return message.value
        return None

    def kill(self) -> None:
        """End all processes and what they started; returns when they are gone."""
        self.notice_deaths()
        ending = self.living()
        for worker in ending:
            worker.cause = _STOPPED
        self._zygote.kill([worker.pid for worker in ending])
        deadline = time.monotonic() + END_PATIENCE
        while self._are_there(ending) and time.monotonic() < deadline:
            self.poll(0.01)
        for worker in self.all:
            self._close(worker)
        self._selector.close()

    # --- internals ---------------------------------------------------------------------------------------

    def _are_there(self, workers: list[Worker]) -> bool:
        """Whether any of these processes still runs."""
        return self._zygote.alive and any(self._zygote.death(worker.pid) is None for worker in workers)

    def _fork_all(self, backend: str, devices: Sequence[str], start_method: str) -> None:
        """Fork all ranks. Rank 0 inherits the rendezvous store's socket, so nobody can take its port."""
        world_size = len(devices)
        with (
            _open_board(world_size) as shared,
            socket.create_server((LOOPBACK, 0), backlog=world_size) as listener,
        ):
            port = listener.getsockname()[1]
            for rank, device in enumerate(devices):
                settings = Settings(
                    rank,
                    world_size,
                    backend,
                    device,
                    port,
                    os.getcwd(),
                    sys.path[:],
                    dict(os.environ),
                    start_method,
                )
                inherited = [shared] if rank else [shared, listener.fileno()]
                self.all.append(self._fork(settings, inherited))

    def _fork(self, settings: Settings, inherited: list[int]) -> Worker:
        ours, theirs = socket.socketpair()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        try:
            pid = self._zygote.fork(settings, [theirs.fileno(), out_end, err_end, *inherited])
        finally:
            theirs.close()
            os.close(out_end)
            os.close(err_end)
        worker = Worker(settings.rank, pid, Channel(ours, blocking=False), {out: "stdout", err: "stderr"})
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        for pipe in worker.pipes:
            os.set_blocking(pipe, False)
            worker.decoders[pipe] = codecs.getincrementaldecoder("utf-8")("replace")
            self._selector.register(pipe, selectors.EVENT_READ, worker)
        return worker

    def _select(self, channel: Channel) -> None:
        """Wait for room to send, too, while something is queued."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_send else 0)
        with contextlib.suppress(KeyError):  # closed already
            key = self._selector.get_key(channel)
            if key.events != wanted:
                self._selector.modify(channel, wanted, key.data)

    def _receive(self, worker: Worker) -> list[tuple[int, Any]]:
        """Pipes first: what was printed before a message belongs before it."""
        arrived: list[tuple[int, Any]] = []
        for pipe, name in list(worker.pipes.items()):
            if text := self._read_pipe(worker, pipe):
                arrived.append((worker.rank, Stream(name, text, is_raw=True)))
        worker.channel.flush()
        arrived += [(worker.rank, message) for message in worker.channel.receive_available()]
        if worker.channel.at_end:
            self._forget(worker.channel)
        else:
            self._select(worker.channel)
        return arrived

    def _read_pipe(self, worker: Worker, pipe: int) -> str:
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return ""
        if not data:
            self._close_pipe(worker, pipe)
        return worker.decoders[pipe].decode(data)

    def _close(self, worker: Worker) -> None:
        self._forget(worker.channel)
        worker.channel.close()
        for pipe in list(worker.pipes):
            self._close_pipe(worker, pipe)

    def _close_pipe(self, worker: Worker, pipe: int) -> None:
        self._forget(pipe)
        os.close(pipe)
        del worker.pipes[pipe]

    def _forget(self, file: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)


class MemoryKills:
    """Notices when Linux kills processes for want of memory: any process of the machine."""

    def __init__(self) -> None:
        self._count, self._since = _out_of_memory_kills(), -math.inf

    def recent(self) -> bool:
        """Whether it has killed one lately, which may be the one whose end is seen now."""
        count, now = _out_of_memory_kills(), time.monotonic()
        if count != self._count:
            self._count, self._since = count, now
        return now - self._since < KILL_LASTS


@contextlib.contextmanager
def _open_board(world_size: int) -> Iterator[int]:
    """The descriptor of a new board, ours until every rank has inherited it."""
    descriptor = board.create(world_size)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _describe(status: int, out_of_memory: bool) -> str:
    """How a process ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    name = signal.Signals(-code).name
    if name == "SIGKILL" and out_of_memory:
        return "was killed by SIGKILL because memory ran out"
    return f"was killed by {name}"


def _out_of_memory_kills() -> int:
    """Processes that Linux has killed for want of memory since the machine started."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as table:
        return int(dict(line.split() for line in table).get("oom_kill", 0))
    return 0
