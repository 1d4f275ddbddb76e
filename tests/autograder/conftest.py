"""Code that runs in a sandbox, and what it says."""

import json
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from autograder.inside.limits import Limits
from autograder.sandbox.bubblewrap import Sandbox

SAY = """
import json, socket, sys
def say(value):
    with socket.socket(fileno=int(sys.argv[1])) as out:
        out.sendall(json.dumps(value).encode())
"""
SMALL = Limits(memory_bytes=1 << 30, processes=20, threads=200, disk_bytes=1 << 20, cpu_seconds=5)


@pytest.fixture
def run(program: Callable[[str], str]) -> Iterator[Callable[..., tuple[Sandbox, object]]]:
    """Runs Python code in a sandbox; returns the sandbox and what it has to `say`, if anything."""
    program("bwrap")
    started = []

    def run(code: str, limits: Limits = SMALL, timeout: float = 60) -> tuple[Sandbox, object]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [sys.executable, "-c", SAY + code, str(theirs.fileno())]
            started.append(Sandbox(command, [theirs.fileno()], limits))
            theirs.close()
            ours.settimeout(timeout)
            said = b"".join(iter(lambda: ours.recv(4096), b""))
            return started[-1], json.loads(said) if said else None

    yield run
    for one in started:
        one.kill()
