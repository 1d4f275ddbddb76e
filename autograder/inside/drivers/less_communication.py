"""Trains by local steps, and averages compressed gradients, with what a student has written.

`checks.less_communication` names these drivers in its cases; it knows what has to come of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from autograder.inside.moments import mark

Batches = list[list[torch.Tensor]]  # each of inputs and targets


def make_model() -> nn.Module:
    """A small one in float64, of which one layer is frozen."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[2].requires_grad_(False)
    return model


def begin(
    state: dict[str, torch.Tensor], kind: str, device: str = "cpu"
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model in this state and its optimizer, with gradients as an earlier backward leaves them."""
    model = make_model().to(device)
    model.load_state_dict(state)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    if kind == "SGD":
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def lopsided_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Squared errors and more, so that it matters which argument comes first."""
    return (outputs - targets).square().mean() + outputs.mean()


def local_sgd(
    local_sgd_round: Callable,
    state: dict[str, torch.Tensor],
    kind: str,
    rounds: list[Batches],
    group: dist.ProcessGroup | None = None,
) -> list[dict[str, object]]:
    """For each round the weights after it; marks when it begins, and each loss."""
    model, optimizer = begin(state, kind, "cuda" if dist.get_backend() == "nccl" else "cpu")
    report = []
    for batches in rounds:
        mark("began")
        local_sgd_round(model, optimizer, [tuple(batch) for batch in batches], _marked_error, group=group)
        weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        report.append({"weights": weights})
    return report


def _marked_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    mark("loss")
    return lopsided_error(outputs, targets)


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
