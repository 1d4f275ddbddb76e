"""Trials in which all ranks train one model, and the batches that they train it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from autograder.inside import runs
from autograder.inside.drivers.small_models import WIDTH
from autograder.inside.runs import RunFailed
from autograder.kit.case import Trial
from autograder.kit.problem import Problem
from autograder.kit.settings import Setting
from autograder.topics.data_parallelism.mistakes import OUT_OF_STEP, PATTERNS

SAMPLES = 4  # of each rank in each step


@dataclass(frozen=True, kw_only=True)
class Training(Trial):
    """A trial on a model, with ranks that may get out of step."""

    patterns: ClassVar = PATTERNS

    model: str = "plain"

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason in (runs.DEADLOCK, runs.DIED):
            return Problem(OUT_OF_STEP, "the same all-reduces in the same order", failure.message)
        return super().explain(failure)


def draw_batches(setting: Setting, steps: int) -> list[list[torch.Tensor]]:
    """For each rank that takes part a batch for each step; the first sign of it takes turns."""
    batches = setting.draws.randn((len(setting.ranks), steps, SAMPLES, WIDTH))
    for position, own in enumerate(batches):
        for step, batch in enumerate(own):
            batch[0, 0] = batch[0, 0].abs() * (-1) ** (position + step)
    return [[batch.clone() for batch in own] for own in batches]
