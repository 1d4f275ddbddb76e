"""Drivers of exercise 05 on ranks whose memory is measured from outside: with models of tens of MB.

They report sums and norms, which take what each step is to keep, and mark the moments that memory is judged
between.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autograder.inside.drivers import Code, Group
from autograder.inside.drivers.small_models import loss
from autograder.inside.moments import settle
from autograder.inside.reports import Report

NUM_LAYERS, WIDTH = 48, 512
LAYER_BYTES = 4 * WIDTH * WIDTH
NUM_PARAMETERS, NUMEL = 16, 1 << 15
STEPS, STEPS_KEPT = 3, 48


class Remembering(torch.optim.Optimizer):
    """Descends along the mean of many gradients, all of which it keeps: a large state that is little work."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # an answer may hand it on
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:  # no two rows alike
                    rows = [parameter.grad.roll(number) for number in range(STEPS_KEPT)]
                    state |= {"number": 0, "gradients": torch.stack(rows)}
                state["gradients"][state["number"] % STEPS_KEPT] = parameter.grad
                state["number"] += 1
                parameter -= group["lr"] * state["gradients"].mean(0)


@dataclass(frozen=True)
class OneStep(Report):
    """A loss, and norms of the gradients that are there after its backward: of parameters or of shards."""

    loss: torch.Tensor
    norms: torch.Tensor


def optimizer_state(sharded_optimizer: Code, seed: int) -> torch.Tensor:
    """Return the sum of each parameter after each step of an optimizer with a large state."""
    return follow(lambda params: sharded_optimizer(params, Remembering), seed)


def follow(make: Callable[..., Any], seed: int) -> torch.Tensor:
    """Take steps with gradients drawn from this seed, the last of them after the state has been measured.

    Args:
        make: makes the optimizer of its argument, parameters.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = [nn.Parameter(torch.zeros(NUMEL)) for _ in range(NUM_PARAMETERS)]
    settle("began")
    optimizer = make(parameters)
    sums = []
    for number in range(STEPS):
        for parameter in parameters:
            parameter.grad = torch.randn(NUMEL, generator=generator)
        if number == STEPS - 1:
            settle("ended")
        optimizer.step()
        sums.append([parameter.double().sum().item() for parameter in parameters])
    return torch.tensor(sums)


class FilledLayer(nn.Linear):
    """A layer whose weight is filled afterwards: nn.utils.skip_init would import sympy, on each rank."""

    def reset_parameters(self) -> None:
        """Leave the weight as it is."""


def tower(seed: int) -> nn.Sequential:
    """Make layers that are all alike, and keep the size of what goes through them."""
    generator = torch.Generator().manual_seed(seed)
    layers = nn.Sequential()
    for _ in range(NUM_LAYERS):
        layer = FilledLayer(WIDTH, WIDTH, bias=False)
        nn.init.uniform_(layer.weight, -((3 / WIDTH) ** 0.5), (3 / WIDTH) ** 0.5, generator=generator)
        layers.append(layer)
    return layers


def one_step(wrapper: Code, seed: int, batch: torch.Tensor, group: Group = None) -> OneStep:
    """Do one forward and one backward."""
    wrapped = wrapper(tower(seed), group=group)
    gc.collect()
    settle("wrapped")
    settle("began")  # memory taken until then is the wrapper's
    value = loss(wrapped(batch))
    settle("turned")
    value.backward()
    wrapped.finish_gradient_synchronization()
    settle("ended")
    return OneStep(value.detach().reshape(1), norms(wrapped))


def norms(module: nn.Module) -> torch.Tensor:
    """Return the norm of each parameter's gradient, 0 where there is none."""
    return torch.tensor([0.0 if p.grad is None else p.grad.norm().item() for p in module.parameters()])
