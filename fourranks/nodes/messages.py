"""Messages between the ends of a node's connection, besides those of a zygote.

The agent's first line is a `Greeting` as text: nothing is unpickled from a node before it has been read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ..protocol.messages import Settings
from .addresses import Interface

MARK = "fourranks agent: "  # before the greeting; a login shell may print something else first


@dataclass(frozen=True)
class Greeting:
    """An agent's description of its machine.

    Attributes:
        host: its own name.
        versions: of what must be the same at both ends, by name.
        interfaces: of its network, the one first that the node is reached by.
    """

    host: str
    versions: dict[str, str]
    interfaces: list[Interface]

    def line(self) -> str:
        """Return it as a line of text."""
        return f"{MARK}{json.dumps(asdict(self))}\n"

    @classmethod
    def read(cls, line: str) -> Greeting | None:
        """Read a line; None if it is no greeting."""
        if not line.startswith(MARK):
            return None
        said = json.loads(line.removeprefix(MARK))
        return cls(said["host"], said["versions"], [Interface(**each) for each in said["interfaces"]])


# --- from the notebook -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForkThere:
    """Fork a rank.

    Attributes:
        settings: which rank of which world.
        streams: the numbers of its socket's stream, its stdout's and its stderr's.
        board: which board it shares with other ranks of its node, as the notebook tells boards apart.
        board_size: its bytes.
    """

    settings: Settings
    streams: tuple[int, int, int]
    board: int
    board_size: int


@dataclass(frozen=True)
class Listen:
    """Open the socket of a rendezvous store, for the next rank 0."""

    host: str


@dataclass(frozen=True)
class SignalRank:
    """Send a rank a signal."""

    pid: int
    number: int


@dataclass(frozen=True)
class Ping:
    sent: float  # by the notebook's clock


# --- from the agent --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listening:
    """The store's socket is open, or the reason why it is not."""

    port: int
    trouble: str = ""


@dataclass(frozen=True)
class Pong:
    """The state of a node's ranks, and its clock."""

    sent: float  # of the Ping
    clock: float  # the node's
    resident: dict[int, int]  # bytes of memory of each rank, by pid


# --- between the notebook and its Ray driver -------------------------------------------------------------


@dataclass(frozen=True)
class Reserve:
    """Make a placement group; answer with `Reserved`."""

    number: int  # that no other one of this driver has
    world_size: int
    resource: str  # "CPU" or "GPU", one for each rank; empty for GPUs if there are enough, else CPUs


@dataclass(frozen=True)
class Slots:
    """The part of a placement group that is on one node.

    Attributes:
        node: its name.
        address: by which Ray's other nodes reach it.
        bundles: the numbers of the group's bundles, one for each rank.
        resource: of which each of them has one.
    """

    node: str
    address: str
    bundles: tuple[int, ...]
    resource: str  # "CPU" or "GPU"


@dataclass(frozen=True)
class Reserved:
    """The placement group is there, or the reason why it is not."""

    number: int
    slots: tuple[Slots, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class StartAgent:
    """Start the agent of a node; the socket of its bytes, and a file for its last words, come along."""

    number: int  # of the reservation
    slots: Slots
    command: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """Remove a placement group, and with it all that runs in it."""

    number: int


# --- between the notebook and the relay ------------------------------------------------------------------


@dataclass(frozen=True)
class Welcome:
    """The agent is there, and of the same versions."""

    greeting: Greeting


@dataclass(frozen=True)
class AskOutlook:
    """Answer with an `Outlook`."""


@dataclass(frozen=True)
class ClockReading:
    """How the node's clock differs from the notebook's."""

    ahead: float = 0.0  # seconds
    uncertainty: float = 0.0  # of that, either way


@dataclass(frozen=True)
class Outlook:
    """The relay's knowledge of its node."""

    clock: ClockReading
    resident: dict[int, int]  # bytes of memory of each rank, by pid
