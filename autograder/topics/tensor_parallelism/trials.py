"""Trials of exercise 06, in which every rank has its part of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autograder.kit.case import Trial
from autograder.kit.problem import Problem
from autograder.kit.received import not_waited_for_on_any
from autograder.kit.settings import taking_part
from autograder.kit.student import Outcome
from autograder.topics.tensor_parallelism import mistakes

Outcomes = Sequence[tuple[str, Outcome]]  # of the ranks of a group, each with its rank in words


@dataclass(frozen=True, kw_only=True)
class ShardedTrial(Trial):
    """A trial in which ranks hold parts of tensors.

    Attributes:
        traits: its special properties, for the hint.
    """

    patterns: ClassVar = mistakes.PATTERNS
    out_of_step: ClassVar = (mistakes.UNEVEN_COLLECTIVES, "the same collectives on every rank of the group")

    traits: tuple[str, ...] = ()


def together(
    rule: Callable[[Outcomes], Problem | None],
) -> Callable[[Sequence[Outcome | None]], Problem | None]:
    """Make what a trial verifies of a rule for all ranks that take part.

    A tensor that is read before its wait() may hold anything, so that is found before the rule looks at one.
    """

    def verify(outcomes: Sequence[Outcome | None]) -> Problem | None:
        ranks = taking_part(outcomes)
        return not_waited_for_on_any(ranks) or rule(ranks)

    return verify


def names(outcomes: Outcomes) -> list[str]:
    """Return the ranks of a group, in words."""
    return [rank for rank, _ in outcomes]
