"""Drivers of exercise 05: training with shards of optimizer state, gradients or parameters.

They report weights, gradients, sizes and bytes of live tensors, and mark when steps and backwards begin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from autograder.inside.drivers.data_parallelism import LEARNING_RATE
from autograder.inside.drivers.live_memory import at_rest
from autograder.inside.drivers.small_models import build, descend, loss, others
from autograder.inside.moments import mark
from fourranks.rank.allocations import Allocations


class Clipped(torch.optim.Optimizer):
    """As readers write their own: nothing has a default, and the limit is no option of a group."""

    def __init__(self, params: object, lr: float, limit: float) -> None:
        super().__init__(params, {"lr": lr})
        self.limit = limit

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad.clamp(-self.limit, self.limit)


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1}),  # with the lr that is its default
    "clipped": (Clipped, {"lr": 0.1, "limit": 0.5}),
}

Tensors = list[torch.Tensor]


# --- the optimizer


def optimize(
    sharded_optimizer: Callable, plan: dict, weights: Tensors, gradients: list[list[torch.Tensor | None]]
) -> dict:
    """Follow the plan with the student's optimizer."""
    optimizer_cls, options = OPTIMIZERS[plan["kind"]]
    return follow(
        lambda params: sharded_optimizer(params, optimizer_cls, **options), plan, weights, gradients
    )


def follow(
    make: Callable, plan: dict, weights: Tensors, gradients: list[list[torch.Tensor | None]]
) -> dict[str, list]:
    """Steps with given gradients, and the weights after each.

    Args:
        make: makes the optimizer of its argument, parameters or groups of them.
        plan: `groups`, each with the positions of its parameters and its options, of which the last
            may come `late`, in the second step; `plain` if there is one and it is passed without a dict;
            positions of `frozen` parameters; the `factor` of learning rates from step to step; and whether
            gradients are there before a step, or come of its `closure`.
    """
    parameters = [
        nn.Parameter(weight.clone(), requires_grad=at not in plan["frozen"])
        for at, weight in enumerate(weights)
    ]
    groups = [{"params": [parameters[at] for at in places], **options} for places, options in plan["groups"]]
    late = groups.pop() if plan["late"] else None
    optimizer = make(iter(groups[0]["params"]) if plan["plain"] else groups)
    report: dict[str, list] = {"weights": [], "losses": [], "cleared": [], "enabled": []}

    def compute(number: int) -> torch.Tensor:
        """As a backward does: the gradients of a step, and a loss."""
        report["enabled"].append(torch.is_grad_enabled())
        for parameter, gradient in zip(parameters, gradients[number], strict=True):
            parameter.grad = gradient
        return torch.tensor(float(number))

    for number in range(len(gradients)):
        if late and number == 1:
            optimizer.add_param_group(late)
        for group in optimizer.param_groups if plan["factor"] != 1 else ():
            group["lr"] *= plan["factor"]
        optimizer.zero_grad()
        report["cleared"].append(all(p.grad is None or not p.grad.any() for p in parameters))
        if not plan["closure"]:
            compute(number)
        mark("began")
        with torch.set_grad_enabled(not plan["closure"]):  # which a closure does not mind
            result = optimizer.step(partial(compute, number)) if plan["closure"] else optimizer.step()
        report["losses"].append(result.item() if isinstance(result, torch.Tensor) else result)
        report["weights"].append([parameter.detach().clone() for parameter in parameters])
    return report


def optimizer_state(sharded_optimizer: Callable, numels: list[int]) -> int:
    """Bytes that two steps of AdamW leave behind, for float32 parameters of these sizes."""
    parameters = [nn.Parameter(torch.ones(numel, device=_device())) for numel in numels]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    with Allocations() as memory:
        optimizer = sharded_optimizer(parameters, torch.optim.AdamW)
        for _ in range(2):
            optimizer.step()
        return at_rest(memory)


# --- gradients


def hold_gradients(
    wrapper: Callable, seed: int, batch: torch.Tensor, group: dist.ProcessGroup | None = None
) -> dict[str, int]:
    """The most bytes of tensors that a backward makes and has alive at once, and what is left of them."""
    wrapped = wrapper(build("stack", seed).to(_device()), group=group)
    value = loss(wrapped(batch))
    with Allocations() as memory:
        memory.mark("backward")
        value.backward()
        wrapped.finish_gradient_synchronization()
        return {"peak": memory.peak("backward"), "left": at_rest(memory)}


# --- parameters


def shard(
    wrapper: Callable,
    model: str,
    seed: int,
    steps: list[Tensors],
    options: dict,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """A step of SGD for each list of batches; what is held, and the whole model before and after each."""
    wrapped = wrapper(build(model, seed).to(_device()), **_decoded(options), group=group)
    report = {
        "kept": isinstance(wrapped.module, nn.Module),
        "states": [_full_state(wrapped)],
        "held": {name: [list(p.shape), str(p.dtype)] for name, p in wrapped.named_parameters()},
        "steps": [],
    }
    for batches in steps:
        wrapped.zero_grad()
        report["steps"].append(_step(wrapped, model, batches))
        descend(wrapped, LEARNING_RATE)
        report["states"].append(_full_state(wrapped))
    return report


def _step(wrapped: nn.Module, model: str, batches: Tensors) -> dict:
    """Forward and backward of each batch."""
    mark("began")
    for number, batch in enumerate(batches, 1):
        value = loss(wrapped(inputs=batch, **others(model, batch)))
        if number == 1:
            mark("backward")
        value.backward()
        if number in (1, len(batches)):  # of three the first by itself, the others together
            wrapped.finish_gradient_synchronization()
    mark("ended")
    gradients = {
        name: [parameter.grad.numel(), str(parameter.grad.dtype)]
        for name, parameter in wrapped.named_parameters()
        if parameter.grad is not None
    }
    return {"gradients": gradients, "loss": value.item()}


def hold_parameters(
    wrapper: Callable, model: str, seed: int, batch: torch.Tensor, group: dist.ProcessGroup | None = None
) -> dict[str, int]:
    """Bytes that the wrapper holds at first and after two steps; the most that the second adds meanwhile."""
    loss(build(model, seed).to(_device())(batch)).backward()  # what a GPU's libraries take is not ours
    with Allocations() as memory:
        wrapped = wrapper(build(model, seed).to(_device()), group=group)
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
        return {
            "held": held,
            "forward": memory.peak("forward") - before,
            "backward": memory.peak("backward") - before,
            "left": at_rest(memory),
        }


def _decoded(options: dict) -> dict:
    """With the dtype in place of its name, which is all that can be sent."""
    return options | {
        name: getattr(torch, value) for name, value in options.items() if name == "compute_dtype"
    }


def _full_state(wrapped: nn.Module) -> object:
    """A copy, as plain data, whatever kind of dict and tensors it is; something else as it is."""
    state = wrapped.full_state_dict()
    if not isinstance(state, dict):
        return state
    return {
        str(name): value.detach().clone() if isinstance(value, torch.Tensor) else None
        for name, value in state.items()
    }


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
