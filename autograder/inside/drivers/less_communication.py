"""Drivers of exercise 04 that train by local steps, and average compressed gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from autograder.inside.drivers import Code, Group, by_columns
from autograder.inside.drivers.small_models import Named, device
from autograder.inside.moments import mark

Batches = list[list[torch.Tensor]]  # each of inputs and targets


def make_model() -> nn.Module:
    """Make a small model in float64, of which one layer is frozen."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[2].requires_grad_(False)
    return model


def begin(
    state: Named, kind: str, rounds: list[Batches], device: torch.device | str = "cpu"
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Make the model in this state and its optimizer, which has two groups of parameters.

    Gradients are as an earlier backward leaves them. A rank without a batch in the first round has none, as
    if there had been no backward.
    """
    model = make_model().to(device)
    model.load_state_dict(state)
    for parameter in model.parameters() if rounds[0] else ():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    first, *others = model.children()
    groups: list[dict[str, Any]] = [
        {"params": list(first.parameters())},
        {"params": [weight for layer in others for weight in layer.parameters()], "lr": 0.05},
    ]
    if kind == "SGD":
        return model, torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    return model, torch.optim.AdamW(groups, lr=0.1)


def lopsided_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return squared errors and more, so that it matters which argument comes first."""
    return (outputs - targets).square().mean() + outputs.mean()


def local_sgd(
    local_sgd_round: Code, state: Named, kind: str, rounds: list[Batches], group: Group = None
) -> list[Named]:
    """Return the weights after each round; mark when it begins, and each loss."""
    model, optimizer = begin(state, kind, rounds, device())
    report = []
    for batches in rounds:
        mark("began")
        local_sgd_round(model, optimizer, [tuple(batch) for batch in batches], _marked_error, group=group)
        report.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    return report


def _marked_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    mark("loss")
    return lopsided_error(outputs, targets)


def compress(
    compressor: Code, ratio: float, steps: list[list[list[torch.Tensor]]], group: Group = None
) -> list[list[list[torch.Tensor]]]:
    """Return the gradients of each step after averaging, by two compressors that take turns.

    They are not contiguous where they can be otherwise.
    """
    steps = [[[by_columns(gradient) for gradient in each] for each in step] for step in steps]
    compressors = [compressor(ratio, group=group) for _ in steps[0]]
    for step in steps:
        for each, gradients in zip(compressors, step, strict=True):
            each.average(list(gradients))  # in place: a tensor put into this list is lost
    return steps
