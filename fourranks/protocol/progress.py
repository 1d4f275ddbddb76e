"""A rank's report of its communication while a cell runs.

The notebook reads it, too, and must not have to wait until torch is imported: nothing here needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from .calls import Call
from .places import Line

Messages: TypeAlias = dict[tuple[str, int | None, int], int]  # how many, by (group, peer or None, tag)


class Handled(NamedTuple):
    """An exception whose `except` or `finally` the main thread is in, and the line that has raised it."""

    name: str
    at: Line


@dataclass(slots=True)
class Progress:
    """How far one rank has come in its communication: what `watch` compares between ranks."""

    waits: list[Call] = field(default_factory=list)  # that its threads wait for, the main thread's first
    at_work: bool = False  # a thread that may still communicate goes on
    collectives: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)  # by (group, its ranks)
    sends: Messages = field(default_factory=dict)
    recvs: Messages = field(default_factory=dict)  # those from any source: None
    recent: list[Call] = field(default_factory=list)
    launched: Call | None = None  # with NCCL, the oldest call that is not complete
    reached: bool = False  # whether the GPU has done all that it was given before that call, a message
    launches: bool = False  # whether the backend only launches calls, one after the other: NCCL
    failed: list[Call] = field(default_factory=list)  # that ended with an error: their transfer broke off
    refused: list[Call] = field(default_factory=list)  # by the backend: to the other ranks never made
    passes: dict[tuple[str, int], int] = field(default_factory=dict)  # calls of this cell by (file, line)
    nbytes: int = 0  # of all calls so far
    waited: float = 0.0  # seconds that the main thread stood still in calls so far
    raised: list[str] = field(default_factory=list)  # exceptions that ended threads of this cell
    handled: Handled | None = None

    @property
    def blocked(self) -> Call | None:
        """The call that the whole rank stands still in; None while one of its threads goes on."""
        return self.waits[0] if self.waits and not self.at_work else None
