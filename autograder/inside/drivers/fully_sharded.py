"""Drivers of exercise 05's ZeRO-3: training with shards of parameters.

They report weights, sizes and bytes of live tensors, and mark when steps, backwards and layers begin or end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from autograder.inside.drivers import Code, Group
from autograder.inside.drivers.data_parallelism import LEARNING_RATE
from autograder.inside.drivers.live_memory import at_rest
from autograder.inside.drivers.small_models import build, descend, device, loss, others, seeded
from autograder.inside.moments import mark
from autograder.inside.reports import Report
from fourranks.rank.allocations import Allocations

PREFETCHING_STEPS = 5
REVERSED_FROM = 4  # the step from which on all layers between the ends are used in the reverse order

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Sharded(Report):
    """A rank's part of a model, and the whole model before each step and after the last.

    Attributes:
        kept: whether a module is in `.module`.
        held: shape and dtype of what stands for each parameter.
        dtypes: for each step the dtype of each gradient.
    """

    kept: bool
    states: list[object]
    held: dict[str, tuple[list[int], str]]
    dtypes: list[dict[str, str]]


@dataclass(frozen=True)
class HeldParameters(Report):
    """Bytes that a wrapper holds at first and after two steps; the most that the second adds meanwhile."""

    held: int
    forward: int
    backward: int
    left: int


@dataclass(frozen=True)
class HeldInEvaluation(Report):
    """Bytes that a wrapper holds at first and after two forwards; the most that the second adds meanwhile."""

    held: int
    forward: int
    left: int


def shard(
    wrapper: Code, model: str, seed: int, steps: list[Tensors], options: dict[str, Any], group: Group = None
) -> Sharded:
    """Take a step of SGD for each list of batches."""
    wrapped = wrapper(build(model, seed).to(device()), **_decoded(options), group=group)
    states, dtypes = [_full_state(wrapped)], []
    held = {name: (list(p.shape), str(p.dtype)) for name, p in wrapped.named_parameters()}
    for batches in steps:
        wrapped.zero_grad()
        _step(wrapped, model, batches)
        named = wrapped.named_parameters()
        dtypes.append({name: str(p.grad.dtype) for name, p in named if p.grad is not None})
        descend(wrapped, LEARNING_RATE)
        states.append(_full_state(wrapped))
    return Sharded(isinstance(wrapped.module, nn.Module), states, held, dtypes)


def _step(wrapped: Any, model: str, batches: Tensors) -> None:
    """Do forward and backward of each batch."""
    mark("began")
    for number, batch in enumerate(batches, 1):
        value = loss(wrapped(inputs=batch, **others(model, batch)))
        if number == 1:
            mark("backward")
        value.backward()
        if number in (1, len(batches)):  # of three the first by itself, the others together
            wrapped.finish_gradient_synchronization()
    mark("ended")


def hold_parameters(
    wrapper: Code, model: str, seed: int, batch: torch.Tensor, group: Group = None
) -> HeldParameters:
    """Take two steps."""
    loss(build(model, seed).to(device())(batch)).backward()  # a GPU's libraries take memory, too
    with Allocations() as memory:
        wrapped = wrapper(build(model, seed).to(device()), group=group)
        held = at_rest(memory)
        _step(wrapped, model, [batch])
        before = memory.now
        mark("began")
        memory.mark("forward")
        value = loss(wrapped(batch))
        memory.mark("backward")
        mark("backward")
        value.backward()
        wrapped.finish_gradient_synchronization()
        forward, backward = (memory.peak(part) - before for part in ("forward", "backward"))
        return HeldParameters(held, forward, backward, at_rest(memory))


def evaluate_parameters(
    wrapper: Code, seed: int, batch: torch.Tensor, group: Group = None
) -> HeldInEvaluation:
    """Call the model twice without gradients."""
    with torch.no_grad():
        build("stack", seed).to(device())(batch)  # a GPU's libraries take memory, too
        with Allocations() as memory:
            wrapped = wrapper(build("stack", seed).to(device()), group=group)
            held = at_rest(memory)
            wrapped(batch)
            before = memory.now
            memory.mark("forward")
            wrapped(batch)
            return HeldInEvaluation(held, memory.peak("forward") - before, at_rest(memory))


def prefetch(wrapper: Code, seed: int, batch: torch.Tensor, group: Group = None) -> None:
    """Train a model that marks when each of its layers is through, in the last steps in another order."""
    with seeded(seed):
        model = Milestones()
    wrapped = wrapper(model.to(device()), group=group)
    inputs = batch.to(device()).requires_grad_()  # else backward would not need the first layer's weight
    for number in range(1, PREFETCHING_STEPS + 1):
        model.is_reversed = number >= REVERSED_FROM
        mark("began")
        wrapped(inputs).square().mean().backward()
        wrapped.finish_gradient_synchronization()


class Milestones(nn.Sequential):
    """Layers in a row, with a mark when one is through in forward, and when its gradient arrives.

    Marks have the layer's place in the row. When that is reversed, the first and the last layer stay: a
    wrapper that remembers for each layer the next one gathers nothing in vain behind the last.
    """

    NUM_LAYERS, WIDTH = 8, 48

    def __init__(self) -> None:
        super().__init__(*[_Layer(self.WIDTH, self.WIDTH, bias=False) for _ in range(self.NUM_LAYERS)])
        self.is_reversed = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first, *inner, last = cast(list[_Layer], list(self))
        for place, layer in enumerate([first, *(inner[::-1] if self.is_reversed else inner), last]):
            layer.place = place
            inputs = layer(inputs)
        return inputs


class _Layer(nn.Linear):
    place: int

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = _Milestone.apply(super().forward(inputs), self.place)
        return outputs


class _Milestone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, number: int) -> torch.Tensor:
        ctx.number = number
        mark(f"forward {number}")
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        mark(f"backward {ctx.number}")
        return gradient, None


def _decoded(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the dtype in place of its name, which is all that can be sent."""
    return options | {
        name: getattr(torch, value) for name, value in options.items() if name == "compute_dtype"
    }


def _full_state(wrapped: Any) -> object:
    """Return a copy, as plain data, whatever kind of dict and tensors it is; something else as it is."""
    state = wrapped.full_state_dict()
    if not isinstance(state, dict):
        return state
    return {
        str(name): value.detach().clone() if isinstance(value, torch.Tensor) else None
        for name, value in state.items()
    }
