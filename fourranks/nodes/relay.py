"""Stands in for a node's zygote on this machine: a process beside the notebook, started by `remote_zygote`.

It runs the launcher's command, and passes on all messages between the notebook and the node's `agent`.
The notebook hands it a new rank's socket and pipes as it would hand them to a zygote; their other ends, which
the rank has, are on the node. It ends when either side is gone; its stderr says why.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from ..naming import sentence_case
from ..protocol.channel import Channel
from ..zygote import Fork, Forked
from . import versions
from .clock import ClockComparison
from .messages import AskOutlook, ForkThere, Greeting, Outlook, Ping, Pong, Welcome
from .streams import ByteStream, Multiplexer

GREETING_PATIENCE = 180.0  # seconds to reach the node and to start Python there; a busy one took 90
NOISE = 1 << 16  # bytes that a login shell may print before
PING_EVERY = 1.0
FIRST_PINGS = 12  # at once, one after another: the clocks are compared before the first rank is there
PATIENCE = 30.0  # seconds without an answer after which a node is taken for lost
END_PATIENCE = 3.0  # seconds for a node to end its ranks


class Lost(Exception):
    """The node cannot be reached, or no more."""


@dataclass(frozen=True)
class AgentLink:
    """The two ends of a connection to an agent.

    Attributes:
        source, target: descriptors of what comes from it and goes to it.
        end: says how it has ended.
    """

    source: int
    target: int
    end: Callable[[], str]


class Relay:
    """Passes on what a notebook and an agent say."""

    def __init__(self, sock: socket.socket, link: AgentLink) -> None:
        self._notebook = Channel(sock, blocking=True)
        self._notebook_is_gone = False
        self._agent = Multiplexer(link.source, link.target, self._from_agent)
        self._agent.watch(sock.fileno(), self._from_notebook)
        self._clock = ClockComparison()
        self._outlook_wanted = True  # by the notebook
        self._pongs, self._next_stream = 0, 1
        self._heard = self._pinged = time.monotonic()

    def serve(self, greeting: Greeting) -> None:
        """Pass everything on until the notebook is gone.

        Raises:
            Lost: the node is.
        """
        self._notebook.send(Welcome(greeting))
        self._ping()
        while not self._notebook_is_gone:
            self._agent.step(PING_EVERY)
            now = time.monotonic()
            if self._agent.at_end:
                raise Lost("the connection to it has ended")
            if now - self._heard > PATIENCE:
                raise Lost(f"it has not answered for {PATIENCE:.0f} s")
            if now - self._pinged > PING_EVERY:
                self._ping()

    def _ping(self) -> None:
        self._pinged = time.monotonic()
        self._agent.post(Ping(time.perf_counter()))

    def _look(self) -> None:
        self._outlook_wanted = True
        self._ping()

    def _from_agent(self, message: Any) -> None:
        if not isinstance(message, Pong):
            self._notebook.send(message)
            if isinstance(message, Forked):
                self._look()
            return
        self._heard = time.monotonic()
        self._clock.note(message, time.perf_counter())
        self._pongs += 1
        if self._pongs < FIRST_PINGS:
            self._ping()
        elif self._outlook_wanted:  # only then: nothing reads here while no cell runs
            self._outlook_wanted = False
            self._notebook.send(Outlook(self._clock.best(), message.resident))

    def _from_notebook(self) -> None:
        try:
            message, descriptors = self._notebook.receive_with_descriptors()
        except OSError:
            message, descriptors = None, []
        match message:
            case None:
                self._notebook_is_gone = True
            case Fork():
                self._fork(message, descriptors)
            case AskOutlook():
                self._look()
            case _:
                self._agent.post(message)

    def _fork(self, message: Fork, descriptors: list[int]) -> None:
        """Keep this machine's ends of the rank's streams; the node makes the rank and the others."""
        control, stdout, stderr, board = descriptors
        first = self._next_stream
        numbers = first, first + 1, first + 2
        self._next_stream += 3
        self._agent.add(ByteStream(numbers[0], control, socket.socket(fileno=control)))
        self._agent.add(ByteStream(numbers[1], stdout, reads=False))
        self._agent.add(ByteStream(numbers[2], stderr, reads=False))
        file = os.fstat(board)
        self._agent.post(ForkThere(message.settings, numbers, file.st_ino, file.st_size))
        os.close(board)


def greet(notebook: socket.socket, link: AgentLink, node: str) -> Greeting | None:
    """Wait for the agent's greeting; returns None if the notebook goes away meanwhile.

    Raises:
        Lost: there is none, or the node has other versions.
    """
    asked, answered = notebook.fileno(), link.source
    deadline, line, noise = time.monotonic() + GREETING_PATIENCE, b"", 0
    while time.monotonic() < deadline and noise < NOISE:
        readable = wait([asked, answered], 1.0)
        if asked in readable and not notebook.recv(1, socket.MSG_PEEK):
            return None
        if answered not in readable:
            time.sleep(0.01 if asked in readable else 0)  # the notebook's first questions wait
            continue
        byte = os.read(answered, 1)  # the bytes behind the line are not for this function
        if not byte:
            raise Lost(link.end())
        line, noise = line + byte, noise + 1
        if byte == b"\n":
            greeting = Greeting.read(line.decode(errors="replace"))
            if greeting is not None:
                _require_equal_versions(greeting, node)
                return greeting
            line = b""
    raise Lost(f"no answer came within {GREETING_PATIENCE:.0f} s")


def _exit_code(process: subprocess.Popen[bytes]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return f"exit code {process.wait(5)}"
    return "no exit code"


def _require_equal_versions(greeting: Greeting, node: str) -> None:
    if different := versions.differences(versions.own(), greeting.versions, node):
        raise Lost(
            f"its software differs: {' '.join(different)} The notebook and its ranks send each other "
            "Python's own objects, so these must be the same on all nodes. Install them there, or set "
            "FOURRANKS_NODE_PYTHON to the right Python."
        )


def main(descriptor: int, node: str, command: list[str]) -> int:
    """Relay until the notebook or the node is gone.

    Args:
        descriptor: of the socket to the notebook.
        node: the node's name.
        command: the launcher's, which is run; or one word, the descriptor of a socket to the agent.
    """
    notebook = socket.socket(fileno=descriptor)
    is_open = len(command) == 1 and command[0].isdecimal()
    with _handed_over(int(command[0])) if is_open else _launched(command) as link:
        try:
            if (greeting := greet(notebook, link, node)) is not None:
                Relay(notebook, link).serve(greeting)
            return 0
        except Lost as error:
            print(sentence_case(str(error)), file=sys.stderr)
            return 1


@contextlib.contextmanager
def _handed_over(descriptor: int) -> Iterator[AgentLink]:
    with socket.socket(fileno=descriptor) as sock:
        yield AgentLink(sock.fileno(), os.dup(sock.fileno()), lambda: "its agent has ended")


@contextlib.contextmanager
def _launched(command: list[str]) -> Iterator[AgentLink]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield AgentLink(
            process.stdout.fileno(),
            process.stdin.fileno(),
            lambda: f"the launcher's command ended with {_exit_code(process)}",
        )
    finally:
        for pipe in (process.stdin, process.stdout):
            pipe.close()
        try:
            process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
