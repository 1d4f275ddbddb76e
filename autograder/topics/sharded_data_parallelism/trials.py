"""Trials of exercise 05, in which every rank holds a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autograder.inside.drivers.small_models import build
from autograder.kit.settings import Setting, settings_of
from autograder.topics.data_parallelism.mistakes import OUT_OF_STEP
from autograder.topics.data_parallelism.training import TrainingTrial
from autograder.topics.sharded_data_parallelism import mistakes

_weights = list(build("stack", 0).parameters())  # one a layer, of the model that shows memory
LAYER_BYTES = _weights[0].nbytes
WHOLE_BYTES = len(_weights) * LAYER_BYTES
GRADIENTS_AT_ONCE = 6  # that a rank may have besides its share: some to be reduced, some on their way


@dataclass(frozen=True, kw_only=True)
class Sharding(TrainingTrial):
    """A trial in which ranks hold shards, and may get out of step."""

    patterns: ClassVar = mistakes.PATTERNS
    out_of_step: ClassVar = (OUT_OF_STEP, "the same collectives in the same order")


def memory_settings(world_sizes: Sequence[int], seed: int) -> Iterator[Setting]:
    """Yield a setting of four ranks, if those are asked for: an N-th and a few layers are far from all."""
    yield from settings_of(4, world_sizes, seed)
