"""Trials of exercise 08's stretches, in which all ranks of a group make the same calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autograder.kit.case import Trial
from autograder.kit.pattern import single_rank, smaller_group
from autograder.topics.three_d_parallelism import mistakes

PATTERNS = (
    smaller_group(
        "every call, and let positions be those in the group: group_src=, group_dst=, group_peer=."
    ),
    single_rank("Only a single rank goes wrong: it has no other rank to exchange anything with."),
)


@dataclass(frozen=True, kw_only=True)
class RingTrial(Trial):
    patterns: ClassVar = PATTERNS
    out_of_step: ClassVar = (mistakes.UNEVEN_RING, "the same messages on every rank")


@dataclass(frozen=True, kw_only=True)
class ExpertTrial(Trial):
    patterns: ClassVar = PATTERNS
    out_of_step: ClassVar = (mistakes.EXPERTS_OUT_OF_STEP, "the same collectives on every rank")
