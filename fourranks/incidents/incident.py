"""A broken training job, the fault in it, and how many points an answer is worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
RANKS = frozenset(range(4))  # of every job
SPEED = 2  # points


class Cause(Enum):
    """Faults that a job can have; players answer with a letter."""

    A = "a rank skips a collective that the others call"
    B = "the ranks call their collectives in different orders"
    C = "one rank's loop has fewer steps than those of the others"
    D = "ranks draw from random streams that have come apart"
    E = "gradients are summed where they should be averaged"
    F = "partial sums of a gradient are not summed over the ranks"
    G = "data is sent to the wrong rank of a group"
    H = "a checkpoint is loaded by the wrong rank"
    I = "handles and buffers of asynchronous calls are kept"  # noqa: E741
    J = "results are kept together with their graph"
    K = "the batch is too large for the memory of a rank"
    L = "one rank gets more work than the others"
    M = "a rank waits for its file system"
    N = "the clock stops before the communication is over"
    O = "the formula for busbw has the wrong factor"  # noqa: E741
    P = "a link is slower than the others"


@dataclass(frozen=True)
class Incident:
    """One broken job.

    Attributes:
        name: by which players choose it.
        alarm: the message that calls the player in.
        program: its file in `PROGRAMS`.
        minutes: within which an answer earns the points for speed.
        ranks: those on which the fault shows; all four if none is special.
        faulty: text of each line that counts as the place of the fault; it occurs once in the program.
        cause: the fault, in a sentence.
        seen: how the tools show it.
        prevented: the check that would have caught it earlier.
    """

    name: str
    alarm: str
    program: str
    minutes: int
    ranks: frozenset[int]
    faulty: tuple[str, ...]
    cause: Cause
    seen: str
    prevented: str

    @cached_property
    def source(self) -> str:
        """The program's text."""
        return (PROGRAMS / self.program).read_text(encoding="utf-8")

    @property
    def lines(self) -> list[int]:
        """Numbers of the lines that count as the place of the fault."""
        rows = self.source.splitlines()
        return [number for text in self.faulty for number, row in enumerate(rows, 1) if row.strip() == text]

    def grade(self, ranks: Iterable[int], line: int, cause: Cause, seconds: float) -> Points:
        """Give points for an answer."""
        is_solved = cause is self.cause and line in self.lines
        return Points(
            ranks=3 if set(ranks) == self.ranks else 0,
            line=3 if line in self.lines else 0,
            cause=4 if cause is self.cause else 0,
            speed=SPEED if is_solved and seconds <= 60 * self.minutes else 0,
        )


@dataclass(frozen=True)
class Points:
    """The points of an answer, in their parts."""

    ranks: int
    line: int
    cause: int
    speed: int

    MOST = 3 + 3 + 4 + SPEED

    @property
    def total(self) -> int:
        return self.ranks + self.line + self.cause + self.speed
