"""Trials of exercise 05, in which every rank holds a shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autograder.inside.drivers.small_models import build
from autograder.kit.draws import Draws
from autograder.kit.settings import Setting
from autograder.topics.data_parallelism.mistakes import OUT_OF_STEP
from autograder.topics.data_parallelism.training import Training
from autograder.topics.sharded_data_parallelism import mistakes

_weights = list(build("stack", 0).parameters())  # one of each layer
NUM_LAYERS, LAYER_BYTES = len(_weights), _weights[0].nbytes  # of the model that memory is measured with
WHOLE_BYTES = NUM_LAYERS * LAYER_BYTES


@dataclass(frozen=True, kw_only=True)
class Sharding(Training):
    """A trial in which ranks hold shards, and may get out of step."""

    patterns: ClassVar = mistakes.PATTERNS
    out_of_step: ClassVar = (OUT_OF_STEP, "the same collectives in the same order")


def memory_setting(seed: int) -> Setting:
    """Return a setting of four ranks: an N-th and a few layers are far from all of them."""
    return Setting(4, None, Draws(seed))
