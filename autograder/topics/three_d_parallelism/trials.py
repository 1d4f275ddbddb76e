"""Trials of exercise 08's stretches, in which all ranks of a group make the same calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from autograder.inside.reports import as_many
from autograder.kit.case import Trial
from autograder.kit.mistakes import MODIFIED, Mistake
from autograder.kit.pattern import Pattern, single_rank, smaller_group
from autograder.kit.problem import Problem
from autograder.kit.values import largest_difference, same
from autograder.topics.three_d_parallelism import mistakes

PATTERNS = (
    smaller_group(
        "every call, and let positions be those in the group: group_src=, group_dst=, group_peer=."
    ),
    single_rank("Only a single rank goes wrong: it has no other rank to exchange anything with."),
)


_MASK = "Without the mask it is right: a query sees all keys up to its own, by places in the whole sequence."
RING_PATTERNS: tuple[Pattern[Any], ...] = (
    *PATTERNS,
    Pattern(lambda case: case.masked and case.world_size > 1, _MASK),
    Pattern(lambda case: case.masked, _MASK),
)


@dataclass(frozen=True, kw_only=True)
class RingTrial(Trial):
    patterns: ClassVar = RING_PATTERNS
    out_of_step: ClassVar = (mistakes.UNEVEN_RING, "the same messages on every rank")

    masked: bool


@dataclass(frozen=True, kw_only=True)
class ExpertTrial(Trial):
    patterns: ClassVar = PATTERNS
    out_of_step: ClassVar = (mistakes.EXPERTS_OUT_OF_STEP, "the same collectives on every rank")


def differing(mistake: Mistake, name: str, want: torch.Tensor, got: torch.Tensor) -> Problem:
    """Return the problem of a tensor, shown where it is farthest from the right one."""
    expected, shown = largest_difference(want, got)
    return Problem(mistake, f"{name}: {expected}", shown)


def modified(given: Mapping[str, torch.Tensor], after: list[torch.Tensor], where: str) -> Problem | None:
    """Find an argument that is no longer what was given, by its name."""
    pairs = zip(given.items(), as_many(after, len(given)), strict=True)
    changed = (name for (name, before), now in pairs if not same(now, before))
    return next((Problem(MODIFIED, f"{where}: {name} as it was", "other numbers") for name in changed), None)
