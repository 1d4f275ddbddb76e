"""The workers of a world are its processes, one for each rank, as the notebook sees them.

Starts them from the zygote, carries messages both ways, reads what C code and child processes print, and
notices when one dies. Knows nothing of cells or process groups.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import itertools
import os
import resource
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import StartError
from .memory_kills import MemoryKills
from .new_process import working_directory
from .placement import Placement
from .protocol import board
from .protocol.channel import Channel
from .protocol.messages import (
    Answer,
    Clear,
    Complete,
    Display,
    FromRank,
    Inspect,
    Leave,
    Location,
    Settings,
    Stream,
    ToRank,
)
from .protocol.places import Line
from .zygote import Zygote

MAX_WORLD_SIZE = 128  # every two ranks of Gloo share a connection: beyond this, file descriptors run out
_CHUNK = 1 << 16
_MOST_KEPT = 10_000  # messages with output; a thread may show something for ever while no cell runs
_STOPPED = "was stopped"  # the cause of an end that the notebook wanted
WRITING_PATIENCE = 0.3  # seconds for processes to write out their files before they are killed
END_PATIENCE = 5.0  # seconds for killed processes to be reaped; the kernel needs milliseconds


@dataclass(eq=False)
class Worker:
    """One worker process."""

    rank: int
    zygote: Zygote  # that it was forked from
    number: int  # by which the zygote knows it
    channel: Channel
    pipes: dict[int, str]  # file descriptor -> "stdout" or "stderr"
    cause: str | None = None  # how it ended, once it has
    crashed_in: Line | None = None  # the reader's line that a fatal signal ended it in, if that is known
    has_left: bool = False  # whether it has exited with status 0
    memory_bytes: int = 0
    gpu_bytes: int = 0  # of the rank's tensors on its GPU, when it last answered
    decoders: dict[int, codecs.IncrementalDecoder] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Its process ID, once it has been forked."""
        return self.zygote.pid(self.number)

    @property
    def alive(self) -> bool:
        return self.cause is None

    @property
    def death(self) -> str | None:
        """How the process ended, if it was not the notebook that stopped it."""
        return None if self.cause == _STOPPED else self.cause

    def send_signal(self, number: int) -> None:
        """Send the process a signal, which C code cannot keep it from as it may from a message."""
        if self.alive:
            self.zygote.send_signal(self.pid, number)

    def note_memory(self) -> None:
        """Look at the resident memory of the process; the last figure stays known when it has ended."""
        self.memory_bytes = self.zygote.resident_bytes(self.pid) or self.memory_bytes


def _is_output(message: FromRank) -> bool:
    """Tell whether a message shows something; C++ code complains late of connections that were cut."""
    match message:
        case Stream():
            return not (message.is_raw and message.name == "stderr")
        case Display() | Clear():
            return True
    return False


class Workers:
    """The worker processes of one world.

    Args:
        placement: the backend, and the node and the device of each rank.
        zygotes: of the nodes, by name.
        start_method: "fork" or "spawn".
        capacity: ranks that there can be; the world may be smaller, and grow.

    Attributes:
        all: one a rank. A world that has become smaller keeps the others in reserve.
    """

    def __init__(
        self, placement: Placement, zygotes: Mapping[str, Zygote], start_method: str, capacity: int
    ) -> None:
        self._backend, self._start_method = placement.backend, start_method
        self._ranks_per_gpu = placement.ranks_per_gpu
        self._zygotes = zygotes
        self._selector = selectors.DefaultSelector()
        for zygote in zygotes.values():
            self._selector.register(zygote.channel, selectors.EVENT_READ)
        self._memory_kills = MemoryKills()
        self._kept: deque[tuple[int, FromRank]] = deque(maxlen=_MOST_KEPT)
        self._started: list[Worker] = []
        self.all: list[Worker] = []
        self._board = _board(capacity)
        try:
            self.resize(placement)
        except BaseException:
            self.kill()
            raise

    def resize(self, placement: Placement) -> None:
        """Have one worker for each device; those that there were stay, beyond that in reserve.

        Raises:
            StartError: the ranks that there are cannot share their GPUs with so many others.
        """
        if self._backend == "nccl" and placement.ranks_per_gpu > max(1, self._ranks_per_gpu):
            raise StartError(
                f"These ranks were started as {self._ranks_per_gpu} on a GPU, and NCCL cannot let more join "
                "them there. Start a new world."
            )
        self.reserve(placement)
        self.all = self._started[: len(placement.devices)]

    def reserve(self, placement: Placement) -> None:
        """Start the workers that are missing for this placement, to be there when the world grows."""
        missing = range(len(self._started), len(placement.devices))
        if not self._started:
            self._fork_first(placement)
            missing = missing[1:]
        for rank in missing:
            self._started.append(self._fork(rank, placement))

    def __getitem__(self, rank: int) -> Worker:
        return self.all[rank]

    @property
    def clock_uncertainty(self) -> float:
        """Seconds by which the times of two ranks on different nodes may be wrong against each other."""
        return sum(sorted(zygote.clock_uncertainty for zygote in self._zygotes.values())[-2:])

    def living(self) -> list[Worker]:
        return [worker for worker in self.all if worker.alive]

    def send(self, rank: int, message: ToRank) -> None:
        """Send a message to one rank; a dead rank ignores it."""
        if self.all[rank].alive:
            self.all[rank].channel.send(message)
            self._select(self.all[rank].channel)

    def poll(self, timeout: float) -> list[tuple[int, FromRank]]:
        """Return what was kept, and messages that arrive within `timeout` seconds, at the first ones."""
        kept = list(self._kept)
        self._kept.clear()
        return kept + self._arriving(0 if kept else timeout)

    def look(self) -> None:
        """See what has happened while no cell ran; what ranks have shown is kept for the next one."""
        self._keep(self._arriving(0))

    def _keep(self, messages: list[tuple[int, FromRank]]) -> None:
        self._kept += (each for each in messages if _is_output(each[1]))

    def _arriving(self, timeout: float) -> list[tuple[int, FromRank]]:
        """Return messages that arrive within `timeout` seconds, as (rank, message), at the first ones."""
        events = self._selector.select(timeout)
        arrived: list[tuple[int, FromRank]] = []
        for worker in {id(key.data): key.data for key, _ in events if key.data is not None}.values():
            messages = self._receive(worker)
            arrived += messages if worker.rank < len(self.all) else []
        if not events or any(key.data is None for key, _ in events):
            self.notice_deaths()
        return arrived

    def notice_deaths(self) -> None:
        """See whose process has ended; any thread may ask."""
        self._memory_kills.look()
        for zygote in self._zygotes.values():
            living = [worker for worker in self.living() if worker.zygote is zygote]
            ended = zygote.ended(worker.number for worker in living)
            orphaned = not zygote.alive
            for worker in living:
                if worker.number in ended:
                    refusal = zygote.refusals.get(worker.number)
                    worker.cause = refusal or self._cause(ended[worker.number], zygote.node)
                    worker.crashed_in = zygote.crashes.get(worker.number)
                    worker.has_left = ended[worker.number] == 0
                elif orphaned:
                    worker.cause = zygote.loss
            if orphaned:
                self._forget(zygote.channel)

    def ask(self, rank: int, question: Complete | Inspect, patience: float) -> Any:
        """Return a rank's answer about its variables; None if none comes within `patience` seconds."""
        self.send(rank, question)
        deadline = time.monotonic() + patience
        while self[rank].alive and (left := deadline - time.monotonic()) > 0:
            arrived = self._arriving(left)
            self._keep(arrived)
            for _, message in arrived:
                if isinstance(message, Answer) and message.number == question.number:
                    return message.value
        return None

    def kill(self) -> None:
        """End all processes and what they started; returns when they are gone.

        They write out their files first, if they can do so at once.
        """
        self.all = self._started
        self.notice_deaths()
        ending = self.living()
        for worker in ending:
            self.send(worker.rank, Leave())
            worker.cause = _STOPPED
        self._wait_for(ending, WRITING_PATIENCE)
        for zygote in self._zygotes.values():
            zygote.kill([worker.number for worker in ending if worker.zygote is zygote])
        self._wait_for(ending, END_PATIENCE)
        for worker in self.all:
            self._close(worker)
        os.close(self._board)
        self._selector.close()

    # --- internals ---------------------------------------------------------------------------------------

    def _wait_for(self, workers: list[Worker], patience: float) -> None:
        """Wait until these processes have ended, so many seconds at most."""
        deadline = time.monotonic() + patience
        while self._are_there(workers) and time.monotonic() < deadline:
            self._arriving(0.01)

    def _are_there(self, workers: list[Worker]) -> bool:
        """Tell whether any of these processes still runs, as far as their nodes can be asked."""
        return any(worker.zygote.alive and not worker.zygote.ended([worker.number]) for worker in workers)

    def _cause(self, status: int, node: str) -> str:
        """Say how a process ended; that Linux ran out of memory is known of this machine only."""
        if not node:
            return _ending(status, self._memory_kills.recent())
        return f"{_ending(status, out_of_memory=False)} on the node {node}"

    def _fork_first(self, placement: Placement) -> None:
        """Fork rank 0, which inherits the rendezvous store's socket: no other process can take its port."""
        listener = self._zygotes[placement.node_of(0)].listen()
        try:
            self._store_port = listener.port
            self._started.append(self._fork(0, placement, *listener.descriptors))
        finally:
            listener.close()

    def _location(self, rank: int, placement: Placement) -> Location | None:
        """Say where a rank is among several nodes."""
        if not placement.nodes:
            return None
        names = list(dict.fromkeys(placement.nodes))
        own = placement.nodes[rank]
        return Location(
            names.index(own),
            rank - placement.nodes.index(own),
            placement.nodes.count(own),
            self._zygotes[own].interface,
            tuple(self._zygotes[name].host for name in names),
        )

    def _fork(self, rank: int, placement: Placement, *listener: int) -> Worker:
        settings = Settings(
            rank,
            len(placement.devices),
            self._backend,
            placement.devices[rank],
            self._store_port,
            working_directory(),
            sys.path[:],
            dict(os.environ),
            self._start_method,
            self._ranks_per_gpu,
            self._location(rank, placement),
        )
        zygote = self._zygotes[placement.node_of(rank)]
        (ours, theirs), (out, out_end), (err, err_end) = _streams(rank)
        try:
            number = zygote.fork(settings, [theirs.fileno(), out_end, err_end, self._board, *listener])
        finally:
            theirs.close()
            os.close(out_end)
            os.close(err_end)
        worker = Worker(rank, zygote, number, Channel(ours, blocking=False), {out: "stdout", err: "stderr"})
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

    def _receive(self, worker: Worker) -> list[tuple[int, FromRank]]:
        """Read the pipes first: text printed before a message belongs before it."""
        arrived: list[tuple[int, FromRank]] = []
        for pipe, name in list(worker.pipes.items()):
            if text := self._read_pipe(worker, pipe):
                arrived.append((worker.rank, Stream(name, text, is_raw=True)))
        worker.channel.flush()
        on_our_clock = worker.zygote.on_our_clock
        arrived += [(worker.rank, on_our_clock(message)) for message in worker.channel.receive_available()]
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


def _board(capacity: int) -> int:
    """Make the memory in which ranks see each other's progress; returns its descriptor.

    Raises:
        StartError: this process may make no file so large.
    """
    try:
        return board.create(capacity)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        raise StartError(
            f"The ranks cannot be started ({error.strerror}): a file that a process writes may have "
            f"{most:,} bytes. Raise that before the notebook is started: `ulimit -f unlimited`."
        ) from None


def _streams(rank: int) -> tuple[tuple[socket.socket, socket.socket], tuple[int, int], tuple[int, int]]:
    """Open both ends of a rank's channel, of its stdout and of its stderr.

    Raises:
        StartError: this process may not have so many files open.
    """
    pipes: list[tuple[int, int]] = []
    try:
        pipes.append(os.pipe())
        pipes.append(os.pipe())
        return socket.socketpair(), pipes[0], pipes[1]
    except OSError as error:
        for end in itertools.chain(*pipes):
            os.close(end)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise StartError(
            f"Rank {rank} cannot be started ({error.strerror}): a process may have {most:,} files open. "
            "Start fewer ranks, or raise that before the notebook is started: `ulimit -n 4096`."
        ) from None


def _ending(status: int, out_of_memory: bool) -> str:
    """Say how a process ended."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    name = signal.Signals(-code).name
    if name == "SIGKILL" and out_of_memory:
        return "was killed by SIGKILL because memory ran out"
    return f"was killed by {name}"
