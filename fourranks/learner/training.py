"""The loop that every strategy but the pipeline uses as it stands; the parallel part is inside its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from .corpus import Corpus, batch
from .model import loss


def nothing() -> None:
    """Do nothing between backward and step: gradients are complete already."""


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    corpus: Corpus,
    steps: Iterable[int],
    rank: int = 0,
    ranks: int = 1,
    before_step: Callable[[], None] = nothing,
) -> list[float]:
    """Train a model on a rank's rows of each step's batch; returns the losses on these rows.

    Args:
        model: scores the next characters; on any device.
        optimizer: of its parameters.
        corpus: the text.
        steps: their numbers, which choose the batches.
        rank, ranks: which rows of a batch these are; all of them by default.
        before_step: the rest of a wrapper's work, when backward has ended.
    """
    device = next(model.parameters()).device
    losses = []
    for step in steps:
        inputs, targets = (tensor.to(device) for tensor in batch(corpus, step, rank, ranks))
        optimizer.zero_grad()
        of_step = loss(model(inputs), targets)
        of_step.backward()
        before_step()
        optimizer.step()
        losses.append(of_step.item())
    return losses
