"""The warm process from which ranks are forked.

Importing torch takes seconds, forking a process that has done so takes milliseconds. The zygote imports torch
and IPython and then only waits: it must never run a parallel region or touch CUDA, because a child forked
after that hangs as soon as it does so itself. `Zygote` is its handle in the notebook; `main` runs in the
process. A rank that is to be spawned leaves the fork behind at once (`spawn`).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .errors import StartError
from .hardware import Gpus, find_gpus
from .protocol.messages import Channel, Settings

PARENT_CHECK = 1.0  # seconds; how soon the zygote notices a notebook that is gone but left the socket open


@dataclass(frozen=True)
class Ready:
    """The imports are over."""


@dataclass(frozen=True)
class FindGpus:
    """Answer with the `Gpus` of the machine."""

    visible: str | None  # CUDA_VISIBLE_DEVICES of the notebook


@dataclass(frozen=True)
class ImportMore:
    """Import at once what is else imported when there is nothing to do."""


@dataclass(frozen=True)
class Fork:
    """Fork one rank; its file descriptors travel along."""

    settings: Settings


@dataclass(frozen=True)
class Forked:
    pid: int


@dataclass(frozen=True)
class Kill:
    """Kill these ranks and everything that they started."""

    pids: tuple[int, ...]


@dataclass(frozen=True)
class Died:
    pid: int
    status: int  # as from os.waitpid


class Zygote:
    """Handle of the warm process. Creating it does not wait for the imports; the first fork does."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        with theirs:
            self._process = self._launch(theirs)
        self.channel = Channel(ours, blocking=False)
        self._lock = threading.RLock()  # several threads may each start a world
        self._arrived: list[Any] = []
        self._deaths: dict[int, int] = {}
        self._ready: Ready | None = None
        self._gpus: dict[str | None, Gpus] = {}  # by CUDA_VISIBLE_DEVICES

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and not self.channel.at_end

    def ready(self) -> Ready:
        """Wait until the imports are over.

        Raises:
            StartError: the process ended instead.
        """
        with self._lock:
            if self._ready is None:
                self._ready = self._wait_for(Ready)
            return self._ready

    def import_more(self) -> None:
        """Make ranks that are forked from now on ready for optimizers and DDP.

        Else each of them takes a second for the same imports, unless the zygote had time for them. Returns at
        once; the next fork waits for it.
        """
        with self._lock:
            self.channel.send(ImportMore())

    def gpus(self) -> Gpus:
        """The GPUs that ranks forked now can use, by the environment of this moment."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        with self._lock:
            if visible not in self._gpus:
                self.ready()
                self.channel.send(FindGpus(visible))
                self._gpus[visible] = self._wait_for(Gpus)
            return self._gpus[visible]

    def fork(self, settings: Settings, descriptors: list[int]) -> int:
        """Fork a rank; returns its pid.

        Args:
            settings: which rank of which world.
            descriptors: its socket, stdout, stderr and board; for rank 0 also its store's listening socket.
        """
        body = pickle.dumps(Fork(settings))
        with self._lock:
            self.ready()
            self.channel.sock.setblocking(True)
            socket.send_fds(self.channel.sock, [len(body).to_bytes(8, "big") + body], descriptors)
            self.channel.sock.setblocking(False)
            return self._wait_for(Forked).pid

    def kill(self, pids: list[int]) -> None:
        """Kill ranks; their `Died` follows."""
        with self._lock:
            self.channel.send(Kill(tuple(pids)))

    def death(self, pid: int) -> int | None:
        """The wait status of a rank that has ended, else None."""
        with self._lock:
            self._receive()
            return self._deaths.get(pid)

    def stop(self) -> None:
        """End the process and every rank; a zygote whose socket closes does so."""
        self.channel.close()
        self._errors.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _launch(self, theirs: socket.socket) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "fourranks.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Jupyter interrupts the notebook's whole process group
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([_package_parent(), os.environ.get("PYTHONPATH", "")])},
        )

    def _receive(self) -> None:
        for message in self.channel.receive_available():
            if isinstance(message, Died):
                self._deaths[message.pid] = message.status
            else:
                if isinstance(message, Forked):  # Linux may have given an earlier rank's pid again
                    self._deaths.pop(message.pid, None)
                self._arrived.append(message)

    def _wait_for(self, kind: type) -> Any:
        while True:
            for message in self._arrived:
                if isinstance(message, kind):
                    self._arrived.remove(message)
                    return message
            if self.channel.at_end:
                raise StartError(f"The process that ranks are forked from has ended.\n{self._error_text()}")
            select.select([self.channel], [], [])
            self._receive()

    def _error_text(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip() or "It left no message."


_shared: Zygote | None = None


def shared() -> Zygote:
    """This process's zygote: started on the first call, and again if it has died."""
    global _shared
    if _shared is None or not _shared.alive or _shared.owner != os.getpid():
        _shared = Zygote()
        atexit.register(stop_shared)
    return _shared


def share(made: Zygote) -> None:
    """Make this zygote the one of this process."""
    global _shared
    _shared = made


def stop_shared() -> None:
    """End this process's zygote, if it has one."""
    global _shared
    if _shared is not None and _shared.owner == os.getpid():
        _shared.stop()
    _shared = None


def _package_parent() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# --- in the zygote itself --------------------------------------------------------------------------------


def main(
    descriptor: int,
    become: Callable[..., None] | None = None,
    idle_work: Iterable[Callable[[], None]] = (),
) -> None:
    """Import, then fork and reap ranks until the notebook is gone.

    Args:
        descriptor: of the socket to the notebook.
        become: what a forked process does, with the arguments of `become_rank`; that itself by default.
        idle_work: what is done when nothing is asked for and there are no ranks.
    """
    channel = Channel(socket.socket(fileno=descriptor), blocking=True)
    parent = os.getppid()
    alarm = _wake_on_child_death()
    channel.send(_warm_up())
    from .rank.main import become_rank

    become = become or become_rank
    ranks: set[int] = set()
    idle_work = list(idle_work)
    while os.getppid() == parent:
        readable, _, _ = select.select([channel, alarm], [], [], PARENT_CHECK)
        if not readable and idle_work and not ranks:
            idle_work.pop(0)()
        if alarm in readable:
            alarm.recv(4096)
        _reap(channel, ranks)
        if channel in readable and not _obey(channel, ranks, become):
            break
    _kill(ranks)


def _warm_up() -> Ready:
    gc.disable()
    from .rank.main import become_rank  # noqa: F401  (torch and everything else that a rank needs)
    from .rank.shell import shell

    shell()
    gc.freeze()  # what was imported is no garbage: a rank's collector need not look at it, nor copy its pages
    gc.enable()
    return Ready()


def import_more() -> None:
    """Spare later ranks the seconds that the first use of DDP takes: torch imports its compiler then."""
    import torch._dynamo  # noqa: F401

    gc.freeze()


def render_a_traceback() -> None:
    """Spare later ranks the half second of a first traceback: imports, reading torch's source."""
    import torch.distributed
    from IPython.core.ultratb import FormattedTB

    try:
        torch.distributed.barrier()
    except ValueError as error:  # there is no process group here
        as_in_a_rank = FormattedTB(mode="Context", theme_name="neutral")
        as_in_a_rank.structured_traceback(type(error), error, error.__traceback__)


def _wake_on_child_death() -> socket.socket:
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _reap(channel: Channel, ranks: set[int]) -> None:
    for pid in list(ranks):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            ranks.discard(pid)
            _kill_group(pid)  # what the rank started and left behind
            channel.send(Died(pid, status))


def _obey(channel: Channel, ranks: set[int], become: Callable[..., None]) -> bool:
    """Handle one message; False when the notebook has closed its end."""
    message, descriptors = _receive_with_descriptors(channel.sock)
    if isinstance(message, Fork):
        pid = os.fork()
        if pid == 0:
            _become_rank(message, descriptors, channel, become)
        ranks.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(Forked(pid))
    elif isinstance(message, ImportMore):
        import_more()
    elif isinstance(message, FindGpus):
        channel.send(find_gpus(message.visible))
    elif isinstance(message, Kill):
        _kill(ranks.intersection(message.pids))
    return message is not None


def _receive_with_descriptors(sock: socket.socket) -> tuple[Any, list[int]]:
    head, descriptors, _, _ = socket.recv_fds(sock, 8, 5)
    body = b""
    while head and len(body) < int.from_bytes(head, "big"):
        chunk = sock.recv(int.from_bytes(head, "big") - len(body))
        if not chunk:
            return None, []
        body += chunk
    return (pickle.loads(body) if head else None), descriptors


def _become_rank(
    message: Fork, descriptors: list[int], channel: Channel, become: Callable[..., None]
) -> None:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        die_with_parent()
        channel.close()
        control, stdout, stderr, board, *listener = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)

        from . import spawn

        arguments = board, listener[0] if listener else None
        if message.settings.start_method == "spawn":
            spawn.execute(message.settings, control, *arguments)
        control_channel = Channel(socket.socket(fileno=control), blocking=True)
        become(message.settings, control_channel, *arguments)
    except BaseException:
        sys.__stderr__ = os.fdopen(2, "w")
        import traceback

        traceback.print_exc(file=sys.__stderr__)
        sys.__stderr__.flush()
    finally:
        os._exit(1)


def die_with_parent() -> None:
    """Have Linux end this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _kill(pids: set[int]) -> None:
    for pid in pids:
        _kill_group(pid)
        os.kill(pid, signal.SIGKILL)  # it may not have become the leader of its group yet


def _kill_group(pid: int) -> None:
    """Kill a rank's session: the rank and what it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:  # macOS: the group holds only a zombie
        pass


if __name__ == "__main__":
    # The module that the notebook pickles messages from, not __main__.
    from fourranks import zygote

    zygote.main(int(sys.argv[1]), idle_work=[zygote.render_a_traceback, zygote.import_more])
