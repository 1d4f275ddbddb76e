"""The program of the zygote: it imports torch and IPython, then only waits, forks ranks and reaps them.

It must never run a parallel region or touch CUDA, because a child forked after that hangs as soon as it does
so itself. A rank that is to be spawned leaves the fork behind at once (`spawn`). `zygote` is the handle of
this process. It imports parts of `rank` late: others use functions of this module without torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import importlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait

from . import spawn
from .hardware import find_gpus, processor_quota, share_processors
from .protocol.channel import Channel
from .zygote import COMPILER, Died, FindGpus, Fork, Forked, Import, Kill, Ready

PARENT_CHECK = 1.0  # seconds; how soon the zygote notices a notebook that is gone but left the socket open


def main(
    descriptor: int,
    become: Callable[..., None] | None = None,
    idle_work: Iterable[Callable[[], None]] = (),
) -> None:
    """Import, then fork and reap ranks until the notebook is gone.

    Args:
        descriptor: of the socket to the notebook.
        become: called in a forked process with the arguments of `become_rank`, which is the default.
        idle_work: called when nothing is asked for and there are no ranks.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a job's end sends it to all: ranks may save first
    gc.disable()  # this process makes no garbage to speak of; ranks do, and enable it
    channel = Channel(socket.socket(fileno=descriptor), blocking=True)
    parent = os.getppid()
    alarm = _wake_on_child_death()
    _warm_up()
    channel.send(Ready())
    from .rank.main import become_rank

    become = become or become_rank
    sources = [channel.sock, alarm]
    ranks: dict[int, int] = {}  # by pid: the descriptor of what it writes down when it crashes
    idle_work = list(idle_work)
    while os.getppid() == parent:
        readable = wait(sources, PARENT_CHECK)
        if not readable and idle_work and not ranks:
            idle_work.pop(0)()
        if alarm in readable:
            alarm.recv(4096)
        _reap(channel, ranks)
        if channel.sock in readable and not _obey(channel, ranks, become):
            break
    _kill(set(ranks))


def _warm_up() -> None:
    from .rank.main import become_rank  # noqa: F401  (torch and everything else that a rank needs)
    from .rank.shell import shell

    shell()
    processor_quota()  # is kept, for ranks too
    with contextlib.suppress(OSError):  # a disk may be full
        tempfile.gettempdir()  # is kept, too: ranks in a sandbox can write nowhere, and torch.compile asks
    "localhost".encode("idna")  # Python imports this encoding at the first connection to a host by name


def import_modules(*modules: str) -> None:
    """Import modules for later ranks; a failure is left to them, which have the notebook's path."""
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def render_a_traceback() -> None:
    """Spare later ranks the half second of a first traceback: imports, reading torch's source."""
    import torch.distributed
    from IPython.core.ultratb import FormattedTB

    try:
        torch.distributed.barrier()
    except ValueError as error:  # there is no process group here
        as_in_a_rank = FormattedTB(mode="Context")  # a theme has another name in IPython 8
        as_in_a_rank.structured_traceback(type(error), error, error.__traceback__)


def _wake_on_child_death() -> socket.socket:
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _reap(channel: Channel, ranks: dict[int, int]) -> None:
    for pid in list(ranks):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _kill_group(pid)  # processes that the rank started and left behind
            from .rank import crash

            crash_report = ranks.pop(pid)
            channel.send(Died(pid, status, crash.line_of(status, crash_report)))
            os.close(crash_report)


def _obey(channel: Channel, ranks: dict[int, int], become: Callable[..., None]) -> bool:
    """Handle one message; False when the notebook has closed its end."""
    message, descriptors = channel.receive_with_descriptors()
    match message:
        case Fork():
            forked = _fork_rank(message, descriptors, channel, ranks, become)
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(forked)
        case Import(modules):
            import_modules(*modules)
        case FindGpus(visible):
            channel.send(find_gpus(visible))
        case Kill(pids):
            _kill(ranks.keys() & pids)
    return message is not None


def _fork_rank(
    message: Fork,
    descriptors: list[int],
    channel: Channel,
    ranks: dict[int, int],
    become: Callable[..., None],
) -> Forked:
    """Fork a rank, and note it; the child becomes the rank and never returns."""
    _spare_the_rank_copies()
    try:
        pid, crash_report = _fork()
    except OSError as error:
        return Forked(0, _refusal(error))
    if pid == 0:
        for of_another in ranks.values():
            os.close(of_another)
        _become_rank(message, descriptors, crash_report, channel, become)
    ranks[pid] = crash_report
    return Forked(pid)


def _fork() -> tuple[int, int]:
    """Fork; returns the pid, 0 in the child, and the descriptor of a file for the child's crash report."""
    from .rank import crash

    crash_report = crash.new_report()
    try:
        return os.fork(), crash_report
    except OSError:
        os.close(crash_report)
        raise


def _refusal(error: OSError) -> str:
    """Say why Linux has forked no rank."""
    if error.errno == errno.EAGAIN:
        return (
            "could not be started, because there may be no more processes: start fewer ranks, end other "
            "programs, or raise the limit (`ulimit -u`; of a container `--pids-limit`)"
        )
    return f"could not be started: {error.strerror}"


def _spare_the_rank_copies() -> None:
    """Do what the next rank would do itself, and copy pages for."""
    gc.freeze()  # its collector need not look at what is here already
    gc.collect()  # empties Python's lists of free objects
    if compiler := sys.modules.get(f"{COMPILER}.trace_rules"):
        with contextlib.suppress(AttributeError):  # another version of torch may have this elsewhere
            compiler.clear_lru_cache()  # as torch does at each new default group


def _become_rank(
    message: Fork,
    descriptors: list[int],
    crash_report: int,
    channel: Channel,
    become: Callable[..., None],
) -> None:
    try:
        gc.enable()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        die_with_parent()
        share_processors(message.settings.local_world_size)
        channel.close()
        control, stdout, stderr, board, *listener = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)

        arguments = board, listener[0] if listener else None
        if message.settings.start_method == "spawn":
            spawn.execute(message.settings, control, *arguments, crash_report)
        from .rank import crash

        crash.write_to(crash_report)
        control_channel = Channel(socket.socket(fileno=control), blocking=True)
        become(message.settings, control_channel, *arguments)
    except BaseException:
        import traceback

        with os.fdopen(2, "w") as pipe:
            traceback.print_exc(file=pipe)
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
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter on macOS, of a zombie alone
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    # The module that others import: in a rank, __main__ is the reader's.
    from fourranks import zygote_process

    zygote_process.main(
        int(sys.argv[1]),
        idle_work=[
            zygote_process.render_a_traceback,
            functools.partial(zygote_process.import_modules, COMPILER),
        ],
    )
    os._exit(0)  # Python would take half a second to take torch apart
