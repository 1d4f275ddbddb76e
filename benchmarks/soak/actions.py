"""Actions of one rank in a program, as the `oracle` sees them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """A process group: the variable that holds it, "" for the default group, and its global ranks."""

    name: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Join:
    """A collective; ranks with different signatures at the same place of a group contradict each other."""

    group: Group
    signature: tuple
    kind: str
    root: int | None
    handle: str | None


@dataclass(frozen=True)
class Message:
    """One side of a message: `op` is "send" or "recv"; a receive with no peer takes any sender's."""

    op: str
    group: Group
    peer: int | None
    tag: int
    nbytes: int
    dtype: str
    handle: str | None


@dataclass(frozen=True)
class Await:
    """The rank waits for what it has issued under this handle, if anything."""

    handle: str
    polls: bool = False  # it asks again and again whether that is over


@dataclass(frozen=True)
class Make:
    """The rank makes a sub-group together with all ranks of the world."""

    group: Group


@dataclass(frozen=True)
class End:
    """The rank's cell ends here: "exception" or "kill"."""

    how: str


Action = Join | Message | Await | Make | End
Stage = tuple[Action, ...]  # actions of a rank between two stamps
