"""Runs one contender in an interpreter of its own, so that no peer's threads or imports disturb another.

`python -m benchmarks.contender MODULE FUNCTION DESCRIPTOR` is the other end of `Session`: for each request it
takes one measurement and answers with a number, or with the reason why there is none.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from autograder.notebooks.marked_processes import marked

from .model import Contender

COURSE = Path(__file__).parent.parent
PEERS = COURSE / ".venv" / "peers"  # made by `make bench`
MARK = "FOURRANKS_BENCHMARK"  # environment variable by which everything that a contender started is found
END_PATIENCE = 20.0  # seconds for a contender to end what it started
NANNY_PATIENCE = 10.0  # seconds for processes to end by themselves after that; ipyparallel's nannies take 3


class Session:
    """A contender's process, from this side."""

    def __init__(self, contender: Contender, number: int) -> None:
        self._mark = f"{os.getpid()}-{number}"
        self._settings = tempfile.TemporaryDirectory()
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.contender", contender.samples.__module__]
                + [contender.samples.__name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=COURSE,
                env=self._environment(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def measure(self, patience: float) -> float | str:
        """One measurement, or the reason why there is none after so many seconds."""
        try:
            self._connection.send(None)
            if not self._connection.poll(patience):
                return f"no answer within {patience:g} s"
            return self._connection.recv()
        except (EOFError, OSError):
            return f"its process ended with code {self._process.wait()}"

    def close(self) -> list[str]:
        """End the contender; returns the names of the processes that it left behind, which are killed."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_PATIENCE)
        _, alive = psutil.wait_procs(list(marked(MARK, self._mark)), timeout=NANNY_PATIENCE)
        names = [process.name() for process in alive]
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=NANNY_PATIENCE)
        self._process.wait()
        self._settings.cleanup()
        return names

    def _environment(self) -> dict[str, str]:
        """The same for all contenders; none sees settings of the user's own."""
        return os.environ | {
            MARK: self._mark,
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join([str(COURSE), str(PEERS)]),
            "IPYTHONDIR": self._settings.name,
            "JUPYTER_CONFIG_DIR": self._settings.name,
            "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        }


def serve(samples: Iterator[float], requests: Connection) -> None:
    """Answer each request with the next measurement, until the other end is closed."""
    with contextlib.closing(samples), contextlib.suppress(EOFError):
        while True:
            requests.recv()
            requests.send(_next(samples))


def _next(samples: Iterator[float]) -> float | str:
    try:
        return next(samples)
    except ModuleNotFoundError as error:
        return f"not installed ({error.name})"
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


if __name__ == "__main__":
    module, function, descriptor = sys.argv[1:]
    with Connection(int(descriptor)) as connection:
        serve(getattr(importlib.import_module(module), function)(), connection)
