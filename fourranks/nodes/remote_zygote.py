"""The handle of another node's zygote: used as that of this machine, with a `relay` as its process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Any

from ..errors import StartError
from ..new_process import command, environment
from ..protocol.messages import FromRank, Settings
from ..zygote import StoreListener, Zygote
from .clock import shifted
from .environment import travelling
from .messages import AskOutlook, ClockReading, Greeting, Listen, Listening, Outlook, SignalRank, Welcome

PYTHON_VARIABLE = "FOURRANKS_NODE_PYTHON"  # the Python of the other nodes, if it is not where it is here
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")
_NO_PROGRAM = "exit code 127"  # of a shell, and of `env`
LOOK_EVERY = 0.5  # seconds between questions for the memory of ranks


class RemoteZygote(Zygote):
    """A handle of the zygote of a node. Creating it does not wait for the connection; `welcome` does.

    Args:
        node: the node's name.
        way: the launcher's command that starts the agent there, or what else the relay takes.

    Attributes:
        clock: how the node's clock differs from that of this machine.
    """

    def __init__(self, node: str, way: Sequence[str]) -> None:
        self.node = node
        self._way = way
        self.clock = ClockReading()
        self._greeting: Greeting | None = None
        self._resident: dict[int, int] = {}
        self._looked = 0.0
        super().__init__()

    def welcome(self) -> Greeting:
        """Wait for the node's answer.

        Raises:
            StartError: there is none; the message has what the launcher said.
        """
        with self._lock:
            if self._greeting is None:
                greeting = self._wait_for(Welcome).greeting
                self._note_outlook(self._wait_for(Outlook))
                self._greeting = greeting
            return self._greeting

    def fork(self, settings: Settings, descriptors: list[int]) -> int:
        settings.environment = travelling(settings.environment)
        return super().fork(settings, descriptors)

    def listen(self) -> StoreListener:
        with self._lock:
            self.channel.send(Listen(self.host))
            answer = self._wait_for(Listening)
        if answer.trouble:
            raise StartError(
                f"The ranks cannot meet at {self.host} on the node {self.node}: {answer.trouble}"
            )
        return StoreListener(self.host, answer.port)

    def send_signal(self, pid: int, number: int) -> None:
        with self._lock:
            self.channel.send(SignalRank(pid, number))

    def resident_bytes(self, pid: int) -> int | None:
        with self._lock:
            if time.monotonic() - self._looked > LOOK_EVERY:
                self._looked = time.monotonic()
                self.channel.send(AskOutlook())
            self._receive()
            return self._resident.get(pid)

    def on_our_clock(self, message: FromRank) -> FromRank:
        return shifted(message, -self.clock.ahead)

    @property
    def loss(self) -> str:
        return f"was lost with the node {self.node}: {self.last_words()}"

    def _command(self, descriptor: int) -> list[str]:
        return command("fourranks.nodes.relay", str(descriptor), self.node, *self._way)

    def _arrive(self, message: Any) -> None:
        if isinstance(message, Outlook) and self._greeting is not None:
            self._note_outlook(message)
        else:
            super()._arrive(message)

    def _note_outlook(self, outlook: Outlook) -> None:
        self.clock, self._resident = outlook.clock, outlook.resident
        self.clock_uncertainty = outlook.clock.uncertainty

    def _ended(self) -> StartError:
        return StartError(f"The node {self.node} cannot be used. {_explained(self.last_words())}")


def _explained(words: str) -> str:
    """Say in place of Python's traceback what a node lacks; return all other words as they are."""
    if found := _NO_MODULE.search(words):
        words = f"Its Python has no module {found[1]}."
    elif _NO_PROGRAM not in words:
        return words
    return (
        f"{words}\nInstall the same there as here, at the same path, or set {PYTHON_VARIABLE} to the path of "
        "the Python that has it."
    )


def agent_command(node: str, python: str) -> list[str]:
    """Return the command that runs on the node.

    The hash seed is the same on all nodes, as it is for the ranks of one: readers compare hashes.

    Args:
        node: a name or an address of the node, which its agent knows, too.
        python: the path of the node's Python.
    """
    seed = os.environ.get("PYTHONHASHSEED", str(os.getpid()))
    variables = [f"PYTHONHASHSEED={seed}"]
    if (path := environment().get("PYTHONPATH")) != os.environ.get("PYTHONPATH"):
        variables.append(f"PYTHONPATH={path}")  # this package is not installed here; nor may it be there
    return ["env", *variables, python, "-m", "fourranks.nodes.agent", node]
