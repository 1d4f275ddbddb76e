"""Driver of exercise 08's checkpointing: layers that run under it, and what stays alive in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


_made: list[StorageWeakRef] = []  # one by each call of a layer; a layer, which students' code gets, has none


@dataclass(frozen=True)
class Layers:
    """Layers to be called, and what they have in them: two products each, with a dropout between them."""

    weights: list[torch.Tensor]
    calls: Sequence[Code]

    @classmethod
    def of(cls, weights: list[list[torch.Tensor]], dropout: bool, pair: bool) -> Layers:
        own = [[weight.clone().requires_grad_() for weight in each] for each in weights]
        return cls([weight for each in own for weight in each], [_layer(each, dropout, pair) for each in own])


def _layer(weights: list[torch.Tensor], dropout: bool, pair: bool) -> Code:
    first, second = weights

    def layer(x: torch.Tensor, scale: torch.Tensor, factor: float) -> torch.Tensor | Pair:
        hidden = torch.tanh(x @ first) * scale * factor
        _made.append(StorageWeakRef(hidden.untyped_storage()))
        y = F.dropout(hidden, DROPOUT if dropout else 0.0).square() @ second
        return (y, hidden.sum(-1)) if pair else y

    return layer


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
        leaf: whether the first input requires a gradient, and another argument of all layers.
        recorded: whether autograd is on.
        seed: of the random numbers in forward; backward begins with others.
    """
    layers = Layers.of(weights, dropout, pair)
    calls = [partial(checkpointed, layer) for layer in layers.calls]
    return follow(replace(layers, calls=calls), x, leaf, recorded, seed)


def follow(layers: Layers, x: torch.Tensor, leaf: bool, recorded: bool, seed: int) -> Recomputed:
    """Do the same with layers that are called in any way."""
    _made.clear()
    x = x.clone().requires_grad_(leaf)
    scale = torch.linspace(0.5, 2.0, x.shape[-1], dtype=x.dtype).requires_grad_(leaf)
    torch.default_generator.manual_seed(seed)
    y: object = x
    extra = []
    with torch.set_grad_enabled(recorded):
        for call in layers.calls:
            y = call(y, scale, 0.5)
            if isinstance(y, tuple) and len(y) == 2:
                extra.append(y[1])
                y = y[0]
            if not isinstance(y, torch.Tensor):
                return Recomputed(type(y).__name__, [], False, 0, 0, 0, [], [], [])
    alive, forwards = sum(not each.expired() for each in _made), len(_made)
    random = [torch.rand(3)]
    torch.default_generator.manual_seed(seed + 1)
    assert isinstance(y, torch.Tensor)
    outputs = [y.detach().clone(), *(each.detach().clone() for each in extra)]
    if y.requires_grad:
        sum([each.square().sum() for each in extra], y.square().sum()).backward()
    random.append(torch.rand(3))
    own = [weight.grad for weight in layers.weights]
    return Recomputed(
        "Tensor", outputs, y.requires_grad, alive, forwards, len(_made), [x.grad, scale.grad], own, random
    )
