"""Exercise 08's material for its cost model: a transformer, a cluster, a plan and an estimate in numbers.

Students' functions take and return these, and so do the checks' own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A transformer by its numbers; `batch` counts the sequences of a step."""

    num_layers: int
    width: int
    num_heads: int
    vocabulary: int
    sequence: int
    batch: int


@dataclass(frozen=True)
class Cluster:
    """GPUs in nodes.

    Attributes:
        flops: FLOP/s that a GPU attains.
        memory: bytes of a GPU.
        node_bandwidth: bytes a second that a GPU sends to another one of its node.
        network_bandwidth: bytes a second that a GPU sends to another node.
        latency: seconds of a message before its first byte.
    """

    num_gpus: int
    gpus_per_node: int
    flops: float
    memory: float
    node_bandwidth: float
    network_bandwidth: float
    latency: float


@dataclass(frozen=True)
class Plan:
    """How a step is cut over the GPUs; `recompute` keeps only the inputs of layers for backward."""

    data: int
    pipeline: int
    tensor: int
    num_microbatches: int = 1
    recompute: bool = False


@dataclass(frozen=True)
class StepEstimate:
    """Seconds of one step by what they are spent on, and bytes of the fullest rank."""

    compute: float
    tensor: float
    bubble: float
    pipeline: float
    data: float
    memory: float

    @property
    def seconds(self) -> float:
        return self.compute + self.tensor + self.bubble + self.pipeline + self.data
