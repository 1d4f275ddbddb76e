"""Seconds of one layer's forward and backward on one rank: matrix products, attention, vector operations."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import Cluster
from .layout import Plan
from .transformer import Transformer

SCORE_BYTES, SCORE_BYTES_BACKWARD = 13, 20  # each score written and read by softmax, dropout, product
HIDDEN_BYTES = 22  # for each element of the hidden state: two norms, two dropouts with their residual sums
FFN_BYTES = 4  # for each element inside the MLP: bias and activation


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and microbatch on one rank, without communication."""

    forward: float
    backward: float
    attention: float  # the part of forward that selective recompute repeats
    bound: str


def matmul_seconds(cluster: Cluster, rows: float, inner: float, columns: float, fp8: bool = False) -> float:
    """Return the time of one product; short sides fill the tensor cores badly (`half_size`)."""
    gpu, constants = cluster.gpu, cluster.gpu.constants
    peak = gpu.fp8_flops if fp8 else gpu.peak_flops
    fill = 1.0
    for side in (rows, inner, columns):
        fill *= side / (side + constants.half_size)
    arithmetic = 2 * rows * inner * columns / (peak * constants.matmul_efficiency * fill)
    nbytes = 2 * (rows * inner + inner * columns + rows * columns)
    return max(arithmetic, nbytes / gpu.memory_bandwidth)


def vector_seconds(cluster: Cluster, nbytes: float) -> float:
    """Return the time to read and write so many bytes of memory."""
    return nbytes / (cluster.gpu.memory_bandwidth * cluster.gpu.constants.memory_efficiency)


def layer_time(model: Transformer, cluster: Cluster, plan: Plan) -> LayerTime:
    """Return what one layer takes for one microbatch."""
    products = _products(model, cluster, plan)
    score_product, score_vector, score_backward = _attention(model, cluster, plan)
    vector = vector_seconds(cluster, _vector_bytes(model, plan))
    forward = products + score_product + score_vector + vector
    backward = 2 * (products + score_product + vector) + score_backward
    launch = cluster.gpu.constants.launch_seconds
    bound = "launches" if launch > forward else "memory" if vector + score_vector > products else "compute"
    return LayerTime(max(forward, launch), max(backward, launch), score_product + score_vector, bound)


def _products(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    tokens, width, split, fp8 = plan.microbatch_tokens(model), model.hidden, plan.tensor, plan.fp8
    experts = model.active_experts
    ffn = model.ffn_width / split
    attention = matmul_seconds(cluster, tokens, width, model.qkv_width / split, fp8)
    attention += matmul_seconds(cluster, tokens, width / split, width, fp8)
    up = matmul_seconds(cluster, tokens * experts, width, ffn, fp8) * (2 if model.gated else 1)
    return attention + up + matmul_seconds(cluster, tokens * experts, ffn, width, fp8)


def _attention(model: Transformer, cluster: Cluster, plan: Plan) -> tuple[float, float, float]:
    """Return the seconds of forward's products and vector operations on scores, and of backward's vectors."""
    heads, size = model.heads / plan.tensor, model.hidden / model.heads
    tokens, keys = plan.microbatch_tokens(model) / plan.micro_batch, model.sequence
    many = plan.micro_batch * heads
    product = many * (
        matmul_seconds(cluster, tokens, size, keys) + matmul_seconds(cluster, tokens, keys, size)
    )
    if plan.flash:
        return product / 2, 0.0, product / 4  # causal: half of the scores; backward makes them a second time
    scores = many * tokens * keys
    return (
        product,
        vector_seconds(cluster, SCORE_BYTES * scores),
        vector_seconds(cluster, SCORE_BYTES_BACKWARD * scores),
    )


def _vector_bytes(model: Transformer, plan: Plan) -> float:
    tokens = plan.microbatch_tokens(model)
    hidden = HIDDEN_BYTES * model.hidden / (plan.tensor if plan.sequence_parallel else 1)
    ffn = (FFN_BYTES + 2 * model.gated) * model.ffn_width * model.active_experts / plan.tensor
    return tokens * (hidden + ffn)


def head_seconds(model: Transformer, cluster: Cluster, plan: Plan) -> tuple[float, float]:
    """Return forward and backward of the last product, to the vocabulary, with its loss in float32."""
    tokens, width = plan.microbatch_tokens(model), model.vocabulary / plan.tensor
    product = matmul_seconds(cluster, tokens, model.hidden, width)
    loss = vector_seconds(cluster, 12 * tokens * width)
    return product + loss, 2 * product + loss
