"""Drivers of exercise 05: training with shards of optimizer state or gradients.

They report weights, gradients and bytes of live tensors, and mark when steps begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict

import torch
from torch import nn

from autograder.inside.drivers import Code, Group
from autograder.inside.drivers.live_memory import at_rest
from autograder.inside.drivers.small_models import build, device, loss
from autograder.inside.moments import mark
from autograder.inside.reports import Report
from fourranks.rank.allocations import Allocations


class Clipped(torch.optim.Optimizer):
    """As readers write their own: nothing has a default, and the limit is no option of a group."""

    def __init__(self, params: Any, lr: float, limit: float) -> None:
        super().__init__(params, {"lr": lr})
        self.limit = limit

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # an answer may hand it on
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad.clamp(-self.limit, self.limit)


OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1}),  # with the lr that is its default
    "clipped": (Clipped, {"lr": 0.1, "limit": 0.5}),
}

Tensors = list[torch.Tensor]
Gradients = list[list[torch.Tensor | None]]  # of each step


# --- the optimizer


class OptimizerPlan(TypedDict):
    """An optimizer's arguments, and the events of its life: plain data, for the ranks.

    Attributes:
        kind: which of `OPTIMIZERS`.
        groups: of parameters: their positions, and the group's options.
        late: whether the last group comes in the second step.
        plain: whether there is one group, and it is passed without a dict.
        frozen: positions of parameters.
        factor: of learning rates from step to step.
        unscheduled: steps before learning rates begin to change.
        closure: whether gradients come of a closure, and are not there before a step.
        owned: whether a gradient is on its owner only.
    """

    kind: str
    groups: Sequence[tuple[list[int], dict[str, float]]]
    late: bool
    plain: bool
    frozen: list[int]
    factor: float
    unscheduled: int
    closure: bool
    owned: bool


@dataclass(frozen=True)
class Optimized(Report):
    """For each step: the weights after it, and what it returned.

    Attributes:
        cleared: whether `zero_grad` has left nothing.
        enabled: whether a closure was called with gradients enabled.
        rated: of each group that a schedule comes to, whether it has a learning rate.
    """

    weights: list[Tensors] = field(default_factory=list)
    losses: list[object] = field(default_factory=list)
    cleared: list[bool] = field(default_factory=list)
    enabled: list[bool] = field(default_factory=list)
    rated: list[bool] = field(default_factory=list)


def optimize(
    sharded_optimizer: Code, plan: OptimizerPlan, weights: Tensors, gradients: Gradients
) -> Optimized:
    """Follow the plan with the student's optimizer."""
    optimizer_cls, options = OPTIMIZERS[plan["kind"]]
    return follow(
        lambda params: sharded_optimizer(params, optimizer_cls, **options), plan, weights, gradients
    )


def follow(
    make: Callable[..., Any], plan: OptimizerPlan, weights: Tensors, gradients: Gradients
) -> Optimized:
    """Take steps with given gradients.

    Args:
        make: makes the optimizer of its argument, parameters or groups of them.
    """
    parameters = [
        nn.Parameter(weight.clone(), requires_grad=at not in plan["frozen"])
        for at, weight in enumerate(weights)
    ]
    groups: list[dict[str, Any]] = [
        {"params": [parameters[at] for at in places], **options} for places, options in plan["groups"]
    ]
    late = groups.pop() if plan["late"] else None
    optimizer = make(iter(groups[0]["params"]) if plan["plain"] else groups)
    report = Optimized()

    def compute(number: int) -> torch.Tensor:
        """Do what a backward does: make the gradients of a step, and a loss."""
        report.enabled.append(torch.is_grad_enabled())
        for parameter, gradient in zip(parameters, gradients[number], strict=True):
            parameter.grad = gradient
        return torch.tensor(float(number))

    for number in range(len(gradients)):
        if late and number == 1:
            optimizer.add_param_group(late)
        scheduled = plan["factor"] != 1 and number >= plan["unscheduled"]
        for group in optimizer.param_groups if scheduled else ():
            report.rated.append("lr" in group)
            if report.rated[-1]:
                group["lr"] *= plan["factor"]
        optimizer.zero_grad()
        report.cleared.append(all(p.grad is None or not p.grad.any() for p in parameters))
        if not plan["closure"]:
            compute(number)
        mark("began")
        with torch.set_grad_enabled(not plan["closure"]):  # which a closure does not mind
            result = optimizer.step(partial(compute, number)) if plan["closure"] else optimizer.step()
        report.losses.append(result.item() if isinstance(result, torch.Tensor) else result)
        report.weights.append([parameter.detach().clone() for parameter in parameters])
    return report


def optimizer_state(sharded_optimizer: Code, numels: list[int]) -> int:
    """Count the bytes that two steps of AdamW leave behind, for float32 parameters of these sizes."""
    parameters = [nn.Parameter(torch.ones(numel, device=device())) for numel in numels]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    with Allocations() as memory:
        optimizer = sharded_optimizer(parameters, torch.optim.AdamW)
        for _ in range(2):
            optimizer.step()
        return at_rest(memory)


# --- gradients


@dataclass(frozen=True)
class HeldGradients(Report):
    """The most bytes of tensors that a backward makes and has alive at once, and what is left of them."""

    peak: int
    left: int


def hold_gradients(wrapper: Code, seed: int, batch: torch.Tensor, group: Group = None) -> HeldGradients:
    """Do one backward."""
    wrapped = wrapper(build("stack", seed).to(device()), group=group)
    value = loss(wrapped(batch))
    with Allocations() as memory:
        memory.mark("backward")
        value.backward()
        wrapped.finish_gradient_synchronization()
        return HeldGradients(memory.peak("backward"), at_rest(memory))
