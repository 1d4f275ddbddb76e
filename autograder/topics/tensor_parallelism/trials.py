"""Trials in which every rank has its part of tensors, and what they report.

Called by the checks of exercise 06.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autograder.inside import runs
from autograder.inside.runs import RunFailed
from autograder.kit.case import Trial
from autograder.kit.problem import Problem
from autograder.kit.settings import Setting, taking_part
from autograder.kit.student import Outcome
from autograder.topics.tensor_parallelism.mistakes import PATTERNS, UNEVEN_COLLECTIVES


@dataclass(frozen=True, kw_only=True)
class ShardedTrial(Trial):
    """A trial in which ranks hold parts of tensors.

    Attributes:
        traits: what may be special about it, for the hint.
    """

    patterns: ClassVar = PATTERNS

    traits: tuple[str, ...] = ()

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason in (runs.DEADLOCK, runs.DIED):
            expected = "the same collectives on every rank of the group"
            return Problem(UNEVEN_COLLECTIVES, expected, failure.message)
        return super().explain(failure)


def trial(
    setting: Setting,
    what: str,
    driver: Callable,
    arguments: Callable[[int], tuple],
    verify: Callable[[Sequence[tuple[str, Outcome]]], Problem | None],
    traits: tuple[str, ...] = (),
    received: int = 0,
) -> ShardedTrial:
    """A trial on the ranks of a setting.

    Args:
        what: is tried, for the student.
        arguments: of the driver, by position in the group.
        verify: finds what is wrong with the outcomes of the group, each with its rank in words.
        received: bytes that each rank needs from others.
    """
    return ShardedTrial(
        title=setting.title(what),
        inputs=setting.inputs(lambda position, _: arguments(position)),
        members=setting.members,
        driver=driver,
        verify=lambda outcomes: verify(taking_part(outcomes)),
        size=1,
        traits=traits,
        received=[received if rank in setting.ranks else 0 for rank in range(setting.world_size)],
    )


def by_rank(outcomes: Sequence[tuple[str, Outcome]], key: str) -> list[object]:
    """What the driver of each rank has reported under this key."""
    return [outcome.value[key] for _, outcome in outcomes]


def names(outcomes: Sequence[tuple[str, Outcome]]) -> list[str]:
    """The ranks of a group, in words."""
    return [rank for rank, _ in outcomes]
