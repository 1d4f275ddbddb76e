"""Code that runs in a sandbox, and what it says."""

import contextlib
import json
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from autograder.inside.limits import Limits
from autograder.sandbox import tiers
from autograder.sandbox.bubblewrap import Bubblewrap
from autograder.sandbox.sandbox import Sandbox
from autograder.sandbox.tiers import Tier

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
    with running_in(Bubblewrap) as run:
        yield run


@pytest.fixture(params=[Tier.NAMESPACES, Tier.LANDLOCK], ids=lambda tier: tier.value)
def run_in_each(
    request: pytest.FixtureRequest, program: Callable[[str], str]
) -> Iterator[Callable[..., tuple[Sandbox, object]]]:
    """As `run`, in each tier of sandbox that can be had here."""
    if request.param is Tier.NAMESPACES:
        program("bwrap")
    elif reason := tiers.missing(request.param):
        pytest.skip(reason)
    with running_in(request.param.confine) as run:
        yield run


@contextlib.contextmanager
def running_in(kind: type[Sandbox]) -> Iterator[Callable[..., tuple[Sandbox, object]]]:
    """As `run`, in a sandbox of this kind."""
    started = []

    def run(code: str, limits: Limits = SMALL, timeout: float = 60) -> tuple[Sandbox, object]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [sys.executable, "-c", SAY + code, str(theirs.fileno())]
            started.append(kind(command, [theirs.fileno()], limits))
            theirs.close()
            ours.settimeout(timeout)
            said = b"".join(iter(lambda: ours.recv(4096), b""))
            return started[-1], json.loads(said) if said else None

    try:
        yield run
    finally:
        for one in started:
            one.kill()
