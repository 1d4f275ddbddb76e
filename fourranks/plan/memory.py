"""Bytes on the fullest rank: weights, gradients, optimizer state, activations.

Mixed precision with Adam is 2 + 2 + 12 bytes a parameter (ZeRO, 1910.02054); activations a layer are those of
Korthikanti et al. (2205.05198), in 16 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .layout import Plan
from .transformer import Transformer


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of the fullest rank."""

    weights: float
    gradients: float
    state: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.state + self.activations

    @property
    def largest(self) -> str:
        """The name of the largest part."""
        return max(("weights", "gradients", "state", "activations"), key=lambda part: getattr(self, part))


def layers_per_rank(model: Transformer, plan: Plan) -> int:
    """Return the layers of the ranks that have most."""
    return math.ceil(model.layers / plan.pipeline)


def rank_parameters(model: Transformer, plan: Plan) -> float:
    """Return the parameters of the first stage's ranks before ZeRO divides them."""
    layers = layers_per_rank(model, plan) * _layer_parameters(model, plan)
    tables = 2 if plan.pipeline == 1 and not model.tied else 1
    return (layers + tables * model.embedding_parameters) / plan.tensor


def _layer_parameters(model: Transformer, plan: Plan) -> float:
    """Return the parameters of one layer before tensor parallelism divides them."""
    return model.attention_parameters + model.experts / plan.expert * model.mlp_parameters


def activation_bytes_per_layer(model: Transformer, plan: Plan) -> float:
    """Return what one layer keeps of one microbatch for its backward."""
    split, unit = plan.tensor, plan.microbatch_tokens(model) * model.hidden
    if plan.recompute == "full":
        return 2 * unit
    scores = (
        0.0
        if plan.flash or plan.recompute == "selective"
        else 5 * model.heads * model.sequence / model.hidden
    )
    replicated, divided = (8, 19) if plan.fp8 else (10, 24)  # the products' inputs are kept in 8 bits
    if plan.sequence_parallel:
        return unit * (replicated + divided + scores) / split
    return unit * (replicated + (divided + scores) / split)


def in_flight(plan: Plan) -> float:
    """Return the microbatches whose activations the first stage holds at once."""
    p, m = plan.pipeline, plan.microbatches
    if plan.schedule == "gpipe":
        return m
    if plan.schedule == "interleaved" and plan.chunks > 1 and p > 1:
        return min(p * (1 + (p - 1) / (p * plan.chunks)), m)
    return min(p, m)


def memory(model: Transformer, plan: Plan) -> MemoryEstimate:
    """Return the bytes of the fullest rank."""
    parameters = rank_parameters(model, plan)
    # The ranks that share experts are fewer by as much as a rank has fewer of them.
    shard = rank_parameters(model, replace(plan, expert=1)) / (plan.data * plan.context)
    kept = in_flight(plan) * layers_per_rank(model, plan) * activation_bytes_per_layer(model, plan)
    if plan.recompute == "full":  # while a layer is in its backward it has all its activations again
        kept += activation_bytes_per_layer(model, replace(plan, recompute="none"))
    logits = 4 * plan.microbatch_tokens(model) * model.vocabulary / plan.tensor
    if plan.pipeline == 1:
        kept += logits
    weights, gradients, state = zero_bytes(parameters, shard, plan.zero)
    gathered = _gathered(model, plan) if plan.zero >= 3 else 0
    return MemoryEstimate(weights + gathered, gradients, state, kept)


def zero_bytes(parameters: float, shard: float, stage: int) -> tuple[float, float, float]:
    """Return the bytes of weights, gradients and optimizer state that a rank keeps under a stage of ZeRO.

    Args:
        parameters: that the rank keeps where nothing is sharded.
        shard: its part of them.
        stage: 0 shards nothing, 1 the optimizer state, 2 gradients too, 3 weights too.
    """
    kept = [shard if stage >= first else parameters for first in (3, 2, 1)]
    return 2 * kept[0], 2 * kept[1], 12 * kept[2]


def _gathered(model: Transformer, plan: Plan) -> float:
    """Return the bytes of two layers that a ZeRO-3 rank holds whole: the present one and the next."""
    return 2 * 2 * _layer_parameters(model, plan) / plan.tensor
