"""Trials in which all ranks train one model: who takes part, with what random numbers, on which batches.

Called by the checks of exercises 04 and 05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from autograder.inside import runs
from autograder.inside.drivers.small_models import WIDTH
from autograder.inside.runs import RunFailed
from autograder.kit import hints
from autograder.kit.draws import Draws
from autograder.kit.judge import Trial
from autograder.kit.policy import Problem, counted, first
from autograder.kit.student import Outcome
from fourranks.errors import name_ranks

WORLD_SIZES = (1, 2, 3, 4, 5)
# What is wrong on one rank: gets its position in the group, the rank in words, and its outcome.
Rule = Callable[[int, str, Outcome], Problem | None]
SAMPLES = 4  # of each rank in each step


@dataclass(frozen=True, kw_only=True)
class Training(Trial):
    """A trial on a model, with ranks that may get out of step."""

    patterns: ClassVar = hints.data_parallelism.PATTERNS

    model: str = "plain"

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason in (runs.DEADLOCK, runs.DIED):
            return Problem("out of step", "the same all-reduces in the same order", failure.message)
        return super().explain(failure)


@dataclass(frozen=True)
class Setting:
    """Who trains, and with what random numbers."""

    world_size: int
    members: tuple[int, ...] | None
    draws: Draws

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    def model_seed(self, rank: int) -> int:
        """Another one on every rank, so that a missing broadcast shows."""
        return self.draws.seed(rank)

    def draw(self, steps: int) -> list[list[torch.Tensor]]:
        """For each rank that takes part a batch for each step; the first sign of it takes turns."""
        batches = self.draws.randn((len(self.ranks), steps, SAMPLES, WIDTH))
        for position, own in enumerate(batches):
            for step, batch in enumerate(own):
                batch[0, 0] = batch[0, 0].abs() * (-1) ** (position + step)
        return [[batch.clone() for batch in own] for own in batches]

    def title(self, what: str) -> str:
        """Of a trial, for the student."""
        group = f", group of {name_ranks(list(self.members))}" if self.members else ""
        return f"{counted(self.world_size, 'rank')}{group}, {what}"

    def inputs(self, arguments: Callable[[int, int], tuple]) -> list[tuple | None]:
        """For each rank that takes part its arguments, by position in the group and rank."""
        positions = {rank: position for position, rank in enumerate(self.ranks)}
        return [
            arguments(positions[rank], rank) if rank in positions else None for rank in range(self.world_size)
        ]

    def trial(
        self,
        what: str,
        driver: Callable,
        arguments: Callable,
        *rules: Rule,
        model: str = "plain",
        kind: type[Training] = Training,
        received: Callable[[int], int] = lambda position: 0,
    ) -> Training:
        """A trial whose outcomes must keep the rules, on every rank the first before the second.

        Args:
            what: is tried, for the student.
            arguments: of the driver, by position in the group and rank.
            kind: of trial.
            received: bytes that a rank needs from others where there are others, by position in the group.
        """
        positions = {rank: position for position, rank in enumerate(self.ranks)}
        return kind(
            title=self.title(what),
            inputs=self.inputs(arguments),
            members=self.members,
            driver=driver,
            verify=partial(_first_problem, rules),
            size=1,
            model=model,
            received=[
                received(positions[rank]) if rank in positions and len(positions) > 1 else 0
                for rank in range(self.world_size)
            ],
        )


def _first_problem(rules: Sequence[Rule], outcomes: Sequence[Outcome | None]) -> Problem | None:
    ranks = taking_part(outcomes)
    return first(rule(at, rank, outcome) for rule in rules for at, (rank, outcome) in enumerate(ranks))


def taking_part(outcomes: Sequence[Outcome | None]) -> list[tuple[str, Outcome]]:
    """The outcome of each rank that takes part, with the rank in words."""
    return [(f"rank {rank}", outcome) for rank, outcome in enumerate(outcomes) if outcome is not None]


def settings(world_sizes: Sequence[int], seed: int) -> Iterator[Setting]:
    """Every world size, then a group without rank 0, so that its rank 0 is not the world's."""
    draws = Draws(seed)
    for world_size in world_sizes:
        yield Setting(world_size, None, draws.split())
    largest = max(world_sizes)
    if largest >= 3:
        yield Setting(largest, tuple(range(1, largest)), draws.split())
