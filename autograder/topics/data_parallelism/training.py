"""Trials in which all ranks train one model, and the batches that they train it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from autograder.inside.drivers.small_models import WIDTH
from autograder.kit.case import Trial
from autograder.kit.settings import Setting
from autograder.topics.data_parallelism import mistakes

SAMPLES = 4  # of each rank in each step
KIND_OF_MODEL = {
    "plain": "three layers",
    "tied": "tied parameters",
    "frozen": "frozen parameters",
    "unused": "unused parameters",
    "sizes": "parameters of no, one and many elements",
    "mixed": "three dtypes",
    "buffers": "buffers",
}


@dataclass(frozen=True, kw_only=True)
class TrainingTrial(Trial):
    """A trial on a model, with ranks that may get out of step."""

    patterns: ClassVar = mistakes.PATTERNS
    out_of_step: ClassVar = (mistakes.OUT_OF_STEP, "the same all-reduces in the same order")

    model: str = "plain"


def draw_batches(setting: Setting, steps: int) -> list[list[torch.Tensor]]:
    """Draw for each rank that takes part a batch for each step; the first sign of it takes turns."""
    batches = setting.draws.randn((len(setting.ranks), steps, SAMPLES, WIDTH))
    for position, own in enumerate(batches):
        for step, batch in enumerate(own):
            batch[0, 0] = batch[0, 0].abs() * (-1) ** (position + step)
    return [[batch.clone() for batch in own] for own in batches]
