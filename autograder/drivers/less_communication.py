"""Trains by local steps, and averages compressed gradients, with what a student has written.

`checks.less_communication` names these drivers in its cases; it knows what has to come of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

Batches = list[tuple[torch.Tensor, torch.Tensor]]


def make_model() -> nn.Module:
    """A small one in float64, of which one layer is frozen."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[2].requires_grad_(False)
    return model


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=0.05)


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).square().mean()


def local_sgd(
    local_sgd_round: Callable,
    state: dict[str, torch.Tensor],
    kind: str,
    rounds: list[Batches],
    group: dist.ProcessGroup | None = None,
) -> list[dict[str, object]]:
    """For each round the weights after it, and when its last loss was computed."""
    model = make_model()
    model.load_state_dict(state)
    if dist.get_backend() == "nccl":
        model.cuda()
    optimizer = make_optimizer(kind, model)
    for parameter in model.parameters():  # as an earlier backward leaves them
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    report = []
    for batches in rounds:
        moments = [time.perf_counter()]

        def loss_fn(
            outputs: torch.Tensor, targets: torch.Tensor, moments: list[float] = moments
        ) -> torch.Tensor:
            moments.append(time.perf_counter())
            return squared_error(outputs, targets)

        local_sgd_round(model, optimizer, [tuple(batch) for batch in batches], loss_fn, group=group)
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        report.append({"weights": weights, "last_loss": moments[-1]})
    return report


def compress(
    compressor: type,
    ratio: float,
    steps: list[list[list[torch.Tensor]]],
    group: dist.ProcessGroup | None = None,
) -> list[list[list[torch.Tensor]]]:
    """The gradients of each step after averaging, by two compressors that take turns."""
    compressors = [compressor(ratio, group=group) for _ in steps[0]]
    for step in steps:
        for each, gradients in zip(compressors, step, strict=True):
            each.average(list(gradients))  # in place: what is put into this list is lost
    return steps
