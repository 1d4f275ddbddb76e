"""The first process of a sandbox without namespaces: it ends all others, as Linux does where there are some.

`sandbox.landlocked` runs it. It confines itself, starts the command, and waits for the end of the command or
of the process that grades. No student's code runs in it, nor may any signal it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Collection

from autograder.inside import filesystem, isolation, limits, system_calls

_END_WITH_PARENT, _BECOME_SUBREAPER = 1, 36  # of prctl; to the latter, orphans become children
_NO_MORE, _CAPABILITIES = 24, 64  # of prctl, which refuses numbers that there are not
_TICK = 0.01  # seconds between looks whether all have ended
_libc = ctypes.CDLL(None)


def main(lifeline: int, given: str, command: list[str]) -> None:
    """Start a command; end all that came of it when it ends, or when the lifeline is closed.

    Args:
        lifeline: a descriptor that is readable when the other end is closed.
        given: as JSON, the paths that can be read and written to, the user to become, 0 to stay this one, and
            descriptors to hold until the end.
        command: inherits all other descriptors.
    """
    readable, writable, user, held = json.loads(given)
    os.setsid()
    limits.go_first()
    _libc.prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    if os.geteuid() == 0:
        _give_up_rights()
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
    isolation.confine(readable, writable)
    woken, wake = _woken_by_ends()
    first = os.fork()
    if first == 0:
        for descriptor in (lifeline, *held):
            os.close(descriptor)
        _become(command, user)
    _close_all_but({lifeline, woken, wake, *held})
    if user:  # may signal the others, and not be signalled by them
        os.setresuid(user + 1, user, user + 1)
    _wait(first, lifeline, woken)
    _end_all()
    filesystem.remove(*writable)


def _give_up_rights() -> None:
    """Leave root's rights out of all programs that are run from here on."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_NO_MORE, capability, 0, 0, 0)


def _become(command: list[str], user: int) -> None:
    try:
        if user:
            os.setresuid(user, user, user)
        _libc.prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        os.chdir(os.environ["HOME"])
        isolation.refuse(system_calls.seccomp_filter(on_disk=True))
        os.execvp(command[0], command)
    finally:
        os._exit(127)


def _close_all_but(kept: Collection[int]) -> None:
    """Close what the command alone is to have, so that its end is noticed; the standard streams stay."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(descriptor)


def _woken_by_ends() -> tuple[int, int]:
    """Return a pipe that is readable when a child has ended."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return woken, wake


def _wait(first: int, lifeline: int, woken: int) -> None:
    """Wait until the first child has ended, or the lifeline; bury all other children meanwhile."""
    while True:
        ready, _, _ = select.select([lifeline, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if lifeline in ready or first in _buried():
            return


def _buried() -> set[int]:
    """Take notice of children that have ended, whose processor time is then this process's."""
    ended = set()
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)
    return ended


def _end_all() -> None:
    """End all processes that this one may signal, which are those of the sandbox."""
    with contextlib.suppress(ChildProcessError):
        while True:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_TICK)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
