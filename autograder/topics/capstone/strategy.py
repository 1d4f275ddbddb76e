"""Check of the capstone: a strategy trains to the loss of plain data parallelism, for a share of its cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from autograder.kit.case import Case
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.problem import Problem
from autograder.kit.student import Function, Outcome
from autograder.topics.capstone import clusters, mistakes
from autograder.topics.capstone.banned import BANNED
from autograder.topics.capstone.training import Training
from fourranks.naming import counted

# Shares of plain data parallelism's cost, the most expensive first. Plain itself gets the first two. The
# solution's cost is 0.08 to 0.17, depending on the language and the cluster that are drawn.
LEVELS = (math.inf, 1.05, 0.5, 0.3, 0.2)


@dataclass(frozen=True, kw_only=True)
class _Level(Case):
    """A training that must not cost more than this share; each level counts alone."""

    training: Training
    number: int
    most: float

    @property
    def weight(self) -> tuple[int, int]:
        return len(LEVELS) - LEVELS.index(self.most), self.world_size

    @property
    def cost(self) -> float | None:
        return self.training.cost

    def __str__(self) -> str:
        what = "at any cost" if self.most == math.inf else f"at {self.most:.0%} of plain's cost"
        return f"cluster {self.number}, {what}"

    def run(self, handle: Function, backend: str) -> Sequence[Outcome | None]:
        self.training.run(handle)
        return []

    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        cost = self.training.cost
        if cost is None or cost <= self.most:
            return self.training.problem
        clocks = self.training.clocks
        communicates = clocks.communicating > clocks.computing
        mistake = mistakes.TOO_DEAR_COMMUNICATING if communicates else mistakes.TOO_DEAR_COMPUTING
        limit = self.most * self.training.plain.seconds
        expected = f"at most {limit:.2f} simulated seconds, {self.most:.0%} of plain's"
        return Problem(mistake, expected, self._spent(cost))

    def _spent(self, cost: float) -> str:
        clocks, steps = self.training.clocks, counted(self.training.steps, "step")
        return (
            f"{clocks.latest:.2f} s, {cost:.1%}: {steps}, in which the slowest rank computes "
            f"{clocks.computing:.2f} s, and a rank communicates {clocks.communicating:.2f} s"
        )


@check("Strategy", banned=BANNED)
def strategy(code: Code, num_clusters: int = 1, seed: int = 0) -> Cases:
    """Check a `Strategy`: it reaches the loss of plain data parallelism, and for how much of its cost.

    Args:
        num_clusters: to try it on, each with a language of its own.
    """
    yield from _levels(list(_trainings(num_clusters, seed)))


def _trainings(num_clusters: int, seed: int) -> Iterator[Training]:
    draws = Draws(seed)
    for _ in range(num_clusters):
        yield Training(draws.split())


def _levels(trainings: Sequence[Training]) -> Iterator[_Level]:
    """Yield the same level of all clusters before the next one: a check may end at the first that fails."""
    for most, (number, training) in product(LEVELS, enumerate(trainings, 1)):
        yield _Level(
            inputs=[()] * clusters.RANKS,
            backends=("gloo",),
            counts_alone=True,
            ranks=most == math.inf,  # one level of each cluster, as all have the same cost
            training=training,
            number=number,
            most=most,
        )
