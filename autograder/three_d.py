"""Exercise 08's material: a rank's place on a mesh, and the model that is trained there.

Students import this into their notebook, and checks train the same model in one process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from fourranks.learner.model import Config, transformer


@dataclass(eq=False)  # so that a mesh can be a key of a dict, and have more attributes, too
class Mesh:
    """This rank's place among data x pipeline x tensor ranks, and its group along each axis.

    Attributes:
        data_group, pipeline_group, tensor_group: the ranks that differ in that coordinate alone.
        data_rank, pipeline_rank, tensor_rank: the coordinates, which are the positions in these groups.
        state: all that this rank keeps from one training step to the next.
    """

    data_group: dist.ProcessGroup
    pipeline_group: dist.ProcessGroup
    tensor_group: dist.ProcessGroup
    data_rank: int
    pipeline_rank: int
    tensor_rank: int
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig(Config):
    """The size of a transformer, and how it is trained.

    Attributes:
        num_microbatches: into which a data-parallel rank's part of the batch is cut.
        seed: of the parameters at the start.
    """

    num_microbatches: int = 2
    learning_rate: float = 0.3
    seed: int = 0


def whole_model(config: ModelConfig) -> nn.Sequential:
    """Make the model in float64: an embedding, the blocks, a head; the same parameters in every process."""
    with torch.random.fork_rng(devices=[]):
        return transformer(config, config.seed).double()
