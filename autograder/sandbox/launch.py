"""Starts the processes that run notebooks: `inside.broker`, in a sandbox or without one.

Each imports torch at once, while this process, which has not imported it to be here, does something else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autograder.sandbox.sandbox import Sandbox


class Unconfined:
    """A process as the reader's own: nothing keeps it from anything."""

    exceeded = ""

    def traffic(self) -> None:
        """Return nothing: its traffic is not counted."""

    def last_words(self) -> str:
        """Return nothing: what it writes is not kept."""
        return ""

    def __init__(self, command: Sequence[str], pass_fds: Sequence[int]) -> None:
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, pass_fds=pass_fds, start_new_session=True, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )

    def kill(self) -> None:
        """End it and the process for the cells; their ranks end with them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True)
class Launched:
    """A process that will answer on a connection once it is ready."""

    process: Sandbox | Unconfined
    connection: socket.socket

    def close(self) -> None:
        """End the process and its ranks."""
        self.connection.close()
        self.process.kill()


Launch = Callable[[], Launched]


def launch(confine: Callable[..., Sandbox | Unconfined]) -> Launched:
    """Start a process.

    Args:
        confine: a kind of `Sandbox`, or `Unconfined`.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "autograder.inside", str(theirs.fileno())]
        return Launched(confine(command, [theirs.fileno()]), ours)


class Ahead:
    """Starts processes, the first of which is begun at once."""

    def __init__(self, start: Launch) -> None:
        self._start = start
        self._next: Launched | None = start()

    def __call__(self) -> Launched:
        taken, self._next = self._next or self._start(), None
        return taken

    def close(self) -> None:
        """End the process that was not taken."""
        if self._next is not None:
            self._next.close()


class Warm(Ahead):
    """Starts processes, each of which was begun when the one before it was taken."""

    def __call__(self) -> Launched:
        taken = super().__call__()
        self._next = self._start()
        return taken
