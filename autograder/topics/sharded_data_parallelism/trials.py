"""Trials in which every rank holds a shard, and what they have in common.

Called by the checks of exercise 05.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autograder.inside.drivers.small_models import build
from autograder.inside.runs import DEADLOCK, DIED, RunFailed
from autograder.kit.draws import Draws
from autograder.kit.problem import Problem
from autograder.kit.settings import Setting
from autograder.topics.data_parallelism.mistakes import OUT_OF_STEP
from autograder.topics.data_parallelism.training import Training
from autograder.topics.sharded_data_parallelism.mistakes import PATTERNS

_layers = build("stack", 0)
NUM_LAYERS, LAYER_BYTES = len(_layers), _layers[0].weight.nbytes  # of the model that memory is measured with


@dataclass(frozen=True, kw_only=True)
class Sharding(Training):
    """A trial in which ranks hold shards, and may get out of step."""

    patterns: ClassVar = PATTERNS

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason in (DEADLOCK, DIED):
            return Problem(OUT_OF_STEP, "the same collectives in the same order", failure.message)
        return super().explain(failure)


def memory_setting(seed: int) -> Setting:
    """Four ranks: an N-th and a few layers are far from all of them."""
    return Setting(4, None, Draws(seed))
