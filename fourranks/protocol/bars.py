"""How far a loop over `fourranks.progress` is: counted in a rank, and put into words by `loops`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Bar:
    """How far one loop is on one rank."""

    description: str
    total: int | None
    depth: int  # loops with a bar around it
    round: int  # how often a loop with this description and depth ended before, in this cell
    began: float  # on the clock of calls
    done: int = 0
    ended: float | None = None
