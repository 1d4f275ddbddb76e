"""Processes that tests start: with signals as a terminal sets them, and killed when the test is over."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

_IGNORING = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)

Command = Sequence[str | Path]


def in_the_background(command: Command) -> Command:
    """Return a command that runs this one as a script's `nohup command &`: it ignores SIGINT and SIGHUP."""
    return [sys.executable, "-c", _IGNORING, *command]


def listens(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def started(command: Command, **options: Any) -> Iterator[subprocess.Popen]:
    """Start a process in a session of its own, and kill it where the `with` block ends before it does.

    Where the block fails, as when pytest's time for a test is over, all that the process has started is
    killed, too. `subprocess.Popen` would wait for its end at that moment, however long that takes.

    Args:
        options: of `subprocess.Popen`.
    """
    with _signals_of_a_terminal():
        process = subprocess.Popen(command, start_new_session=True, **options)
    with process:
        try:
            yield process
        except BaseException:
            _kill(process)
            raise
        if process.poll() is None:
            _kill(process)


def run(command: Command, **options: Any) -> subprocess.CompletedProcess:
    """Run a process to its end, started as by `started`, and keep what it prints."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, **pipes | options) as process:
        output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _kill(process: subprocess.Popen) -> None:
    """Kill a process that leads a session, and all that it has started, in whichever session."""
    children = []
    if process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@contextlib.contextmanager
def _signals_of_a_terminal() -> Iterator[None]:
    """Have SIGINT and SIGHUP end what is started in here, although this process may ignore them.

    A handler, unlike being ignored, is not inherited by another program.
    """
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
