"""A zygote that is forked from this process, in place of one that imports torch once more.

For a process that has imported torch and done nothing else with it: see `fourranks.zygote_process` for why.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from fourranks import zygote, zygote_process
from fourranks.rank.main import become_rank

_TICK = 0.01  # seconds between looks whether it has ended


def share(become: Callable[..., None] = become_rank, *inherited: int) -> None:
    """Make a forked zygote the one of this process. The arguments are those of `ForkedZygote`."""
    zygote.share(ForkedZygote(become, *inherited))


class ForkedZygote(zygote.Zygote):
    """The handle of such a zygote.

    Args:
        become: called in a forked process, in place of `become_rank` and with its arguments.
        inherited: descriptors that such a process needs beside those it is handed.
    """

    def __init__(self, become: Callable[..., None], *inherited: int) -> None:
        self._become, self.inherited = become, inherited
        super().__init__()

    def _launch(self, theirs: socket.socket) -> Child:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return Child(pid)
        try:
            os.dup2(self._errors.fileno(), 2)
            keep_only(theirs.fileno(), *self.inherited)
            end_with(parent)
            os.setsid()
            # Nothing is imported ahead: that would take seconds from ranks that are running elsewhere.
            zygote_process.main(theirs.fileno(), self._become)
        finally:
            os._exit(1)


class Child(zygote.ZygoteProcess):
    """The forked process, as a zygote's handle uses it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its wait status; None while it runs."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if ended else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout` seconds.
        """
        begun = time.monotonic()
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() - begun > timeout:
                raise subprocess.TimeoutExpired("zygote", timeout)
            time.sleep(_TICK)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def keep_only(*descriptors: int) -> None:
    """Close all that a fork has inherited, but for these descriptors and the standard streams.

    Standard input is opened anew: processes that share one opening of a file see the flags that others set.
    """
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    first = 3
    for kept in sorted(descriptors):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def end_with(parent: int) -> None:
    """Have Linux end this process when its parent ends."""
    zygote_process.die_with_parent()
    if os.getppid() != parent:  # it has ended already
        os._exit(1)
