"""Driver of exercise 08's checkpointing: layers that run under it, and what stays alive in between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from autograder.inside.drivers import Code
from autograder.inside.drivers.pipeline_parallelism import Gradients
from autograder.inside.reports import Report

DROPOUT = 0.5
Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Recomputed(Report):
    """Outputs and gradients of some checkpointed calls, one after another.

    Attributes:
        type: of what the last call returned.
        alive: intermediate results alive between forward and backward.
        forwards: calls of the function until backward began, and `total` until it was over.
        random: numbers drawn after forward, and after backward.
    """

    type: str
    outputs: list[torch.Tensor]
    differentiable: bool
    alive: int
    forwards: int
    total: int
    inputs: Gradients
    weights: Gradients
    random: list[torch.Tensor]


class Layer:
    """Two products with a dropout between them; it counts its calls and watches what it makes."""

    def __init__(self, weights: list[torch.Tensor], dropout: bool, pair: bool) -> None:
        self.first, self.second = (weight.clone().requires_grad_() for weight in weights)
        self.dropout, self.pair = dropout, pair
        self.calls = 0
        self.made: list[StorageWeakRef] = []

    def __call__(self, x: torch.Tensor, scale: float) -> torch.Tensor | Pair:
        self.calls += 1
        hidden = torch.tanh(x @ self.first) * scale
        self.made.append(StorageWeakRef(hidden.untyped_storage()))
        y = F.dropout(hidden, DROPOUT if self.dropout else 0.0).square() @ self.second
        return (y, hidden.sum(-1)) if self.pair else y


def run(
    checkpointed: Code,
    x: torch.Tensor,
    weights: list[list[torch.Tensor]],
    dropout: bool,
    pair: bool,
    leaf: bool,
    recorded: bool,
    seed: int,
) -> Recomputed:
    """Go forward through all layers, each checkpointed, and back.

    Args:
        weights: of each layer.
        pair: whether a layer returns two tensors.
        leaf: whether the first input requires a gradient.
        recorded: whether autograd is on.
        seed: of the random numbers in forward; backward begins with others.
    """
    layers = [Layer(each, dropout, pair) for each in weights]
    return follow([partial(checkpointed, layer) for layer in layers], layers, x, leaf, recorded, seed)


def follow(
    calls: list[Code], layers: list[Layer], x: torch.Tensor, leaf: bool, recorded: bool, seed: int
) -> Recomputed:
    """Do the same with layers that are called in any way."""
    x = x.clone().requires_grad_(leaf)
    torch.default_generator.manual_seed(seed)
    y: object = x
    extra = []
    with torch.set_grad_enabled(recorded):
        for call in calls:
            y = call(y, 0.5)
            if isinstance(y, tuple) and len(y) == 2:
                extra.append(y[1])
                y = y[0]
            if not isinstance(y, torch.Tensor):
                return Recomputed(type(y).__name__, [], False, 0, 0, 0, [], [], [])
    alive = sum(not each.expired() for layer in layers for each in layer.made)
    forwards = sum(layer.calls for layer in layers)
    random = [torch.rand(3)]
    torch.default_generator.manual_seed(seed + 1)
    assert isinstance(y, torch.Tensor)
    outputs = [y.detach().clone(), *(each.detach().clone() for each in extra)]
    if y.requires_grad:
        sum([each.square().sum() for each in extra], y.square().sum()).backward()
    random.append(torch.rand(3))
    total = sum(layer.calls for layer in layers)
    own = [weight.grad for layer in layers for weight in (layer.first, layer.second)]
    return Recomputed("Tensor", outputs, y.requires_grad, alive, forwards, total, [x.grad], own, random)
