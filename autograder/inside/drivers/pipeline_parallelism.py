"""Driver of exercise 07: one run of a pipeline on real ranks.

It reports gradients and what was alive, and marks the steps: "F0" when the first forward begins, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from autograder.inside.drivers import Code, Group, are_alike
from autograder.inside.moments import mark
from autograder.inside.reports import Report

Weights = list[torch.Tensor]  # of a layer: its weight and its bias
Gradients = list[torch.Tensor | None]


@dataclass(frozen=True)
class PipelineRun(Report):
    """The result of one run, its gradients, and the most microbatches that were alive at once.

    Attributes:
        graphs: microbatches that could still do a backward.
        kept: microbatches whose inputs, outputs or gradient of the inputs somebody holds.
        intact: whether the caller's schedule and microbatches are as they were.
        still: whether the stage's weights are.
    """

    loss: object
    gradients: Gradients
    graphs: int
    kept: int
    intact: bool
    still: bool


class AddedLayer(nn.Module):
    """Adds to its input what a layer makes of it; `transposed` leaves it in another order in memory."""

    def __init__(self, weights: Weights, frozen: bool = False, transposed: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(tensor.clone(), not frozen) for tensor in weights)
        self.transposed = transposed

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = inputs + torch.tanh(F.linear(inputs, self.weight, self.bias))
        return outputs.t().contiguous().t() if self.transposed else outputs


def mean_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Take a mean over the samples that is another one when outputs and targets are swapped."""
    return ((outputs - targets).square() + outputs).mean()


def gradients(module: nn.Module) -> Gradients:
    """Return a copy of each parameter's gradient."""
    return [None if p.grad is None else p.grad.detach().clone() for p in module.parameters()]


def run(
    run_pipeline: Code,
    schedule: list[list[Any]],
    layers: list[Weights],
    frozen: bool,
    transposed: bool,
    microbatches: list[list[torch.Tensor]],
    group: Group = None,
) -> PipelineRun:
    """Run a pipeline with this rank's stage."""
    device = microbatches[0][0].device
    stage = nn.Sequential(*[AddedLayer(own, frozen, transposed) for own in layers]).to(device)
    watched = _Watched(stage, dist.get_rank(group) == 0)
    steps = [tuple(step) for step in schedule]
    pairs = [(inputs.clone(), targets.clone()) for inputs, targets in microbatches]
    loss = run_pipeline(steps, watched, pairs, mean_loss, group=group)
    intact = [*map(list, steps)] == [*map(list, schedule)] and are_alike(pairs, microbatches)
    still = are_alike([(weight, bias) for weight, bias in map(nn.Module.parameters, stage)], layers)
    return PipelineRun(loss, gradients(stage), watched.most_graphs, watched.most_kept, intact, still)


class _Watched(nn.Module):
    """A stage that marks its steps, and counts the microbatches of which something is alive."""

    def __init__(self, stage: nn.Module, is_first: bool) -> None:
        super().__init__()
        self.stage, self.is_first = stage, is_first
        self.most_graphs = self.most_kept = 0
        self._graphs: list[StorageWeakRef] = []
        self._tensors: list[list[StorageWeakRef]] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        number = len(self._graphs)
        mark(f"F{number}")
        self._count()
        outputs = self.stage(inputs)
        ones = torch.ones_like(outputs)
        outputs = outputs * ones  # whose backward needs them: they live as long as the graph can be used
        if outputs.requires_grad:
            outputs.register_hook(lambda _: mark(f"B{number}"))
        self._graphs.append(StorageWeakRef(ones.untyped_storage()))
        self._watch(inputs, outputs)
        return outputs

    def _watch(self, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        own = [StorageWeakRef(outputs.untyped_storage())]
        self._tensors.append(own)
        if self.is_first:  # its inputs are the caller's
            return
        own.append(StorageWeakRef(inputs.untyped_storage()))
        if inputs.is_leaf and inputs.requires_grad:
            inputs.register_post_accumulate_grad_hook(
                lambda leaf: own.append(StorageWeakRef(leaf.grad.untyped_storage()))
            )

    def _count(self) -> None:
        """Count the microbatch whose forward begins now, too; memory that is used again is the last one's."""
        graphs = sum(not graph.expired() for graph in self._graphs)
        held = {each.cdata: at for at, own in enumerate(self._tensors) for each in own if not each.expired()}
        self.most_graphs = max(self.most_graphs, 1 + graphs)
        self.most_kept = max(self.most_kept, 1 + len(set(held.values())))
