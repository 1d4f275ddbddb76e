"""A benchmark: something to measure, Four Ranks and its peers to measure it on, a figure to hold."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

OURS = "Four Ranks"


@dataclass(frozen=True)
class Hold:
    """A figure to hold: as text, and as a test of the medians of Four Ranks and of the peer beside it."""

    text: str
    test: Callable[[float, float], bool]


def faster(factor: float) -> Hold:
    """Four Ranks takes at most 1/factor of a peer's time."""
    return Hold(f"≥ {factor:g}× faster", lambda ours, peer: peer >= factor * ours)


def no_more_than(factor: float) -> Hold:
    """Four Ranks takes at most `factor` times a peer's time."""
    return Hold(f"≤ {factor:g}× its time", lambda ours, peer: ours <= factor * peer)


def at_most(limit: float, unit: str) -> Hold:
    """Four Ranks itself stays within a limit, in base units."""
    return Hold(f"≤ {limit:g} {unit}".rstrip(), lambda ours, _: ours <= limit)


@dataclass(frozen=True)
class Contender:
    """One line of the table.

    Attributes:
        samples: a generator function of some module of this package; it yields measurements in base units.
    """

    name: str
    samples: Callable[[], Iterator[float]]
    hold: Hold | None = None


@dataclass(frozen=True)
class Benchmark:
    """A measurement, taken in turns on each contender; the first is Four Ranks.

    Attributes:
        patience: seconds for one measurement; 200 deadlocks take 120, the slowest peer 15, on two idle cores.
        enough: seconds after which a slow contender is not measured again.
    """

    title: str
    contenders: tuple[Contender, ...]
    repeats: int
    unit: str = "s"
    patience: float = 300.0
    enough: float = 40.0


@dataclass
class Result:
    """The results of one contender, or the reason why there are none; seconds spent on them."""

    contender: Contender
    values: list[float] = field(default_factory=list)
    reason: str = ""
    spent: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.values)
