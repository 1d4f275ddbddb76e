"""The notebook's handle of the zygote, the warm process from which ranks are forked, and what the two say.

Importing torch takes seconds, forking a process that has done so takes milliseconds. `zygote_process` is what
runs in that process.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

import psutil

from . import new_process
from .errors import StartError
from .hardware import Gpus
from .protocol import memory
from .protocol.channel import Channel
from .protocol.messages import LOOPBACK, FromRank, Settings
from .protocol.places import Line

T = TypeVar("T")


@dataclass(frozen=True)
class Ready:
    """The imports are over."""


@dataclass(frozen=True)
class FindGpus:
    """Answer with the `Gpus` of the machine."""

    visible: str | None  # CUDA_VISIBLE_DEVICES of the notebook


@dataclass(frozen=True)
class Import:
    """Import these modules, so that ranks forked from now on have them."""

    modules: tuple[str, ...]


@dataclass(frozen=True)
class Fork:
    """Fork one rank; its file descriptors travel along."""

    settings: Settings


@dataclass(frozen=True)
class Forked:
    pid: int
    refusal: str = ""  # why there is none, to follow the name of a rank; the pid is 0 then


@dataclass(frozen=True)
class Kill:
    """Kill these ranks and everything that they started."""

    pids: tuple[int, ...]


@dataclass(frozen=True)
class Died:
    """The end of a rank.

    Attributes:
        status: as from os.waitpid.
        line: the reader's that it crashed in, if it did and this is known.
    """

    pid: int
    status: int
    line: Line | None = None


@dataclass(frozen=True)
class StoreListener:
    """The listening socket of a rendezvous store, for rank 0 to inherit: nothing else can take its port.

    Attributes:
        host, port: where it listens.
        sock: the socket, if it is on this machine.
    """

    host: str
    port: int
    sock: socket.socket | None = None

    @property
    def descriptors(self) -> list[int]:
        """Of the socket, as far as there is one on this machine."""
        return [] if self.sock is None else [self.sock.fileno()]

    def close(self) -> None:
        """Leave the socket to the rank that has inherited it."""
        if self.sock is not None:
            self.sock.close()


class ZygoteProcess(Protocol):
    """A warm process, with as much of `subprocess.Popen` as its handle uses."""

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


_FAILURE = 1 << 8  # the wait status of a process that has exited with 1
STORE_BACKLOG = 128  # as many ranks as a world can have


class Zygote:
    """Handle of the warm process. Creating it does not wait for the imports; the first fork does.

    Attributes:
        node: the name of the machine that it is on; empty for this one.
        host: the address of that machine, for the other nodes of a world.
        interface: the network interface of this address.
        clock_uncertainty: seconds by which a rank's times may be wrong, either way.
    """

    node = interface = ""
    host = LOOPBACK
    inherited: tuple[int, ...] = ()  # descriptors that the process gets besides its socket
    clock_uncertainty = 0.0

    def __init__(self) -> None:
        self.owner = os.getpid()
        new_process.open_standard_streams()
        ours, theirs = socket.socketpair()
        self._errors = os.fdopen(memory.create(), "w+b")  # closed by stop
        with theirs:
            self._process = self._launch(theirs)
        self.channel = Channel(ours, blocking=False)
        self._lock = threading.RLock()  # several threads may each start a world
        self._arrived: list[Any] = []
        self._forks = 0
        self._pids: dict[int, int] = {}  # of ranks, by number
        self._numbers: dict[int, int] = {}  # of ranks, by pid, which Linux may give again
        self._deaths: dict[int, int] = {}  # wait status, by number
        self.crashes: dict[int, Line | None] = {}  # the reader's lines that ranks crashed in, by number
        self.refusals: dict[int, str] = {}  # why ranks could not be forked, by number
        self._is_ready = False
        self._gpus: dict[str | None, Gpus] = {}  # by CUDA_VISIBLE_DEVICES

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and not self.channel.at_end

    def ready(self) -> None:
        """Wait until the imports are over.

        Raises:
            StartError: the process ended instead.
        """
        with self._lock:
            if not self._is_ready:
                self._wait_for(Ready)
                self._is_ready = True

    def import_modules(self, *modules: str) -> None:
        """Import modules that ranks forked from now on would otherwise import one by one.

        Returns at once; the next fork waits for it. A module that cannot be imported is left to the ranks.
        """
        with self._lock:
            self.channel.send(Import(modules))

    def gpus(self) -> Gpus:
        """Return the GPUs that ranks forked now can use, by the environment of this moment."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        with self._lock:
            if visible not in self._gpus:
                self.ready()
                self.channel.send(FindGpus(visible))
                self._gpus[visible] = self._wait_for(Gpus)
            return self._gpus[visible]

    def fork(self, settings: Settings, descriptors: list[int]) -> int:
        """Have a rank forked, without waiting for it; returns the number by which it is known here.

        Args:
            settings: which rank of which world.
            descriptors: its socket, stdout, stderr and board; for rank 0 also its store's listening socket.
        """
        with self._lock:
            self.ready()
            self.channel.send_with_descriptors(Fork(settings), descriptors)
            self._forks += 1
            return self._forks

    def pid(self, number: int) -> int:
        """Return the pid of the rank with this number, once it has been forked.

        Raises:
            StartError: there is no such rank: Linux refused it, or the process ended before.
        """
        with self._lock:
            pid = self._forked(number)
            if number in self.refusals:
                raise StartError(f"A rank {self.refusals[number]}.")
            return pid

    def _forked(self, number: int) -> int:
        """Wait until a rank has been forked, or refused; returns its pid, or 0."""
        while number not in self._pids:
            self._wait()
        return self._pids[number]

    def listen(self) -> StoreListener:
        """Open the socket on which rank 0, if it is forked here, serves the rendezvous store.

        Raises:
            StartError: this process may open none.
        """
        try:
            sock = socket.create_server((LOOPBACK, 0), backlog=STORE_BACKLOG)
            with socket.socket(type=socket.SOCK_DGRAM) as probe:
                probe.connect(sock.getsockname())  # sends nothing
        except PermissionError:
            raise StartError(
                "Ranks meet through a socket, and this process may open none. Where a notebook is graded "
                "without namespaces (docs/security.md), checks start ranks, and cells cannot."
            ) from None
        except OSError as error:
            raise StartError(
                f"Ranks meet at {LOOPBACK}, which cannot be reached ({error.strerror}): this machine's "
                "loopback interface is down. As root: `ip link set lo up`."
            ) from None
        return StoreListener(LOOPBACK, sock.getsockname()[1], sock)

    def kill(self, numbers: list[int]) -> None:
        """Kill ranks; their `Died` follows."""
        with self._lock, suppress(StartError):  # the ranks of a process that has ended have ended with it
            self.channel.send(Kill(tuple(map(self._forked, numbers))))

    def send_signal(self, pid: int, number: int) -> None:
        """Send a rank a signal."""
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def resident_bytes(self, pid: int) -> int | None:
        """Return the memory of a rank's process; None if that is not known."""
        with suppress(psutil.Error):
            return int(psutil.Process(pid).memory_info().rss)
        return None

    def on_our_clock(self, message: FromRank) -> FromRank:
        """Return a rank's message with all times by the clock of this machine."""
        return message

    @property
    def loss(self) -> str:
        """The fate of the ranks when this process ended."""
        return "was ended, together with the process that ranks are forked from"

    def ended(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the wait status of each of these ranks that has ended."""
        with self._lock:
            self._receive()
            return {number: self._deaths[number] for number in numbers if number in self._deaths}

    def stop(self) -> None:
        """End the process and every rank; a zygote whose socket closes does so."""
        self.channel.close()
        self._errors.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _launch(self, theirs: socket.socket) -> ZygoteProcess:
        return subprocess.Popen(
            self._command(theirs.fileno()),
            pass_fds=[theirs.fileno(), *self.inherited],
            start_new_session=True,  # Jupyter interrupts the notebook's whole process group
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            cwd=new_process.working_directory(),
            env=new_process.environment() | new_process.huge_pages(),
        )

    def _command(self, descriptor: int) -> list[str]:
        return new_process.command("fourranks.zygote_process", str(descriptor))

    def _receive(self) -> None:
        for message in self.channel.receive_available():
            self._arrive(message)

    def _arrive(self, message: Any) -> None:
        match message:
            case Forked(pid, refusal):
                number = len(self._pids) + 1
                self._pids[number] = pid
                if refusal:
                    self.refusals[number], self._deaths[number] = refusal, _FAILURE
                else:
                    self._numbers[pid] = number
            case Died(pid, status, line):
                number = self._numbers[pid]
                self._deaths[number], self.crashes[number] = status, line
            case _:
                self._arrived.append(message)

    def _wait_for(self, kind: type[T]) -> T:
        while True:
            for message in self._arrived:
                if isinstance(message, kind):
                    self._arrived.remove(message)
                    return message
            self._wait()

    def _wait(self) -> None:
        """Wait until something arrives."""
        if self.channel.at_end:
            raise self._ended()
        wait([self.channel.sock])
        self._receive()

    def _ended(self) -> StartError:
        return StartError(f"The process that ranks are forked from has ended.\n{self.last_words()}")

    def last_words(self) -> str:
        """Return what the process wrote to stderr."""
        if self._errors.closed:
            return "It was stopped."
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip() or "It left no message."


COMPILER = "torch._dynamo"  # torch imports it at the first use of an optimizer or DDP: a second
_shared: Zygote | None = None


def shared() -> Zygote:
    """Return this process's zygote: started on the first call, and again if it has died."""
    global _shared
    if _shared is None or not _shared.alive or _shared.owner != os.getpid():
        _shared = Zygote()
    return _shared


def share(made: Zygote) -> None:
    """Make this zygote the one of this process."""
    global _shared
    _shared = made


@atexit.register
def stop_shared() -> None:
    """End this process's zygote, if it has one."""
    global _shared
    if _shared is not None and _shared.owner == os.getpid():
        _shared.stop()
    _shared = None
