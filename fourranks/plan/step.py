"""`estimate_step`: the predicted time of one training step, in parts, with its memory."""

from __future__ import annotations

from dataclasses import dataclass

from . import collectives
from .cluster import Cluster, PlanError
from .compute import LayerTime, head_seconds, layer_time, vector_seconds
from .layout import Plan
from .memory import MemoryEstimate, layers_per_rank, memory, rank_parameters
from .schedule import bubble_slots
from .transformer import Transformer

OPTIMIZER_BYTES = 40  # a parameter: gradient, master weight and two moments read, three of them written
# Share of hidden traffic that still costs time: it takes multiprocessors and memory bandwidth.
CONTENTION = 0.2
RESERVE = 0.08  # of a GPU's memory, for the CUDA context, NCCL's buffers and fragments


@dataclass(frozen=True)
class StepEstimate:
    """Seconds of one step and bytes of the fullest rank.

    Attributes:
        compute, tensor, pipeline, data: seconds of arithmetic, of tensor- and context-parallel traffic, of
            messages between stages, of data-parallel traffic that nothing hides.
        bubble: seconds in which a stage waits for others.
        optimizer: seconds of the update.
        forward, backward: seconds of one microbatch on one stage, traffic included.
        kernel_bound: the resource that sets the pace inside a layer.
    """

    compute: float
    tensor: float
    pipeline: float
    data: float
    bubble: float
    optimizer: float
    forward: float
    backward: float
    kernel_bound: str
    memory: MemoryEstimate
    memory_limit: float
    model_flops_per_gpu: float

    @property
    def seconds(self) -> float:
        return self.compute + self.tensor + self.pipeline + self.data + self.bubble + self.optimizer

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.memory_limit

    @property
    def bound(self) -> str:
        """The part that takes most of the step."""
        parts = ("compute", "tensor", "pipeline", "data", "bubble", "optimizer")
        part = max(parts, key=lambda name: getattr(self, name))
        return self.kernel_bound if part == "compute" else part

    @property
    def tflops_per_gpu(self) -> float:
        """Model TFLOP/s: without what recompute adds."""
        return self.model_flops_per_gpu / self.seconds / 1e12


def estimate_step(model: Transformer, cluster: Cluster, plan: Plan) -> StepEstimate:
    """Predict a training step.

    Raises:
        PlanError: the model cannot be cut so, or the plan has another number of GPUs than the cluster.
    """
    plan.check(model)
    if plan.gpus != cluster.gpus:
        raise PlanError(f"the plan is for {plan.gpus} GPUs, the cluster has {cluster.gpus}")
    layer, number, m = layer_time(model, cluster, plan), layers_per_rank(model, plan), plan.microbatches
    head_forward, head_backward = head_seconds(model, cluster, plan)
    forward_traffic, backward_traffic = _layer_traffic(model, cluster, plan)
    forward = number * layer.forward + head_forward
    backward = number * (layer.backward + _recomputed(layer, plan)) + head_backward
    again = forward_traffic if plan.recompute == "full" else 0.0
    traffic = number * (forward_traffic + backward_traffic + again)
    messages = _messages(model, cluster, plan)
    forward_all = forward + number * forward_traffic
    backward_all = backward + traffic - number * forward_traffic
    data = _data(model, cluster, plan, forward_all, backward_all)
    return StepEstimate(
        compute=m * (forward + backward),
        tensor=m * traffic,
        pipeline=m * messages,
        data=data,
        bubble=bubble_slots(plan) * (number * _slot(layer, plan) + traffic + messages),
        optimizer=_update(model, cluster, plan),
        forward=forward_all,
        backward=backward_all,
        kernel_bound=layer.bound,
        memory=memory(model, plan),
        memory_limit=cluster.gpu.memory_bytes * (1 - RESERVE),
        model_flops_per_gpu=model.step_flops(plan.batch) / cluster.gpus,
    )


def _recomputed(layer: LayerTime, plan: Plan) -> float:
    """Return the part of forward that a backward repeats."""
    if plan.recompute == "full":
        return layer.forward
    return layer.attention if plan.recompute == "selective" and not plan.flash else 0.0


def _layer_traffic(model: Transformer, cluster: Cluster, plan: Plan) -> tuple[float, float]:
    """Return the seconds of one layer's collectives in forward and in backward."""
    nbytes = 2 * plan.microbatch_tokens(model) * model.hidden
    tensor = 2 * collectives.all_reduce(cluster, plan.tensor, 1, nbytes)
    return tensor + _context(model, cluster, plan, nbytes) + _experts(model, cluster, plan, nbytes), (
        tensor + 2 * _context(model, cluster, plan, nbytes) + _experts(model, cluster, plan, nbytes)
    )


def _context(model: Transformer, cluster: Cluster, plan: Plan, nbytes: float) -> float:
    """Return the seconds in which a layer's keys and values are gathered from the context-parallel ranks."""
    share = 2 * (model.kv_heads or model.heads) / model.heads / plan.tensor
    return collectives.all_gather(cluster, plan.context, plan.tensor, nbytes * plan.context * share)


def _experts(model: Transformer, cluster: Cluster, plan: Plan, nbytes: float) -> float:
    """Return the seconds of the two all-to-alls that send tokens to experts and back."""
    sent = nbytes * model.active_experts / plan.tensor
    return 2 * collectives.all_gather(cluster, plan.expert, plan.tensor, sent)


def _messages(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Return the seconds of a microbatch's messages between stages, there and back."""
    if plan.pipeline == 1:
        return 0.0
    nbytes = 2 * plan.microbatch_tokens(model) * model.hidden / plan.tensor
    stride = plan.tensor * plan.context * plan.data
    chunks = plan.chunks if plan.schedule == "interleaved" else 1
    return 2 * chunks * collectives.send(cluster, stride, nbytes)


def _slot(layer: LayerTime, plan: Plan) -> float:
    """Return forward and backward of one layer."""
    return layer.forward + layer.backward + _recomputed(layer, plan)


def _update(model: Transformer, cluster: Cluster, plan: Plan) -> float:
    """Return the seconds of the optimizer."""
    sharded = plan.data * plan.context if plan.zero else 1
    return vector_seconds(cluster, OPTIMIZER_BYTES * rank_parameters(model, plan) / sharded)


def _data(model: Transformer, cluster: Cluster, plan: Plan, forward: float, backward: float) -> float:
    """Return the seconds of data-parallel traffic that no computing hides.

    Args:
        forward, backward: seconds of one microbatch.
    """
    ranks, nbytes = plan.data * plan.context, 2 * rank_parameters(model, plan)
    if ranks == 1:
        return 0.0
    if plan.zero < 3 and not plan.overlap:
        return collectives.all_reduce(cluster, ranks, plan.tensor, nbytes)
    gather = collectives.all_gather(cluster, ranks, plan.tensor, nbytes)
    if not plan.all_cards:
        gather = nbytes / (cluster.gpu.card_bandwidth * cluster.gpu.constants.network_efficiency)
    if plan.zero < 3:  # parameters arrive during the first forward, gradients leave during the last backward,
        reductions = plan.microbatches if plan.zero == 2 else 1  # at ZeRO-2 during each: none is kept whole
        return _exposed(gather, forward) + reductions * _exposed(gather, backward)
    return plan.microbatches * (_exposed(gather, forward) + _exposed(2 * gather, backward))


def _exposed(traffic: float, computing: float) -> float:
    """Return the seconds that traffic adds to the computing that it overlaps with."""
    return max(0.0, traffic - computing) + CONTENTION * min(traffic, computing)
