"""The gradients that data-parallel training must have, by a serial run, and what is wrong with others.

Called by the checks of exercises 04 and 05, in the notebook's process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from autograder.inside.drivers.data_parallelism import LEARNING_RATE
from autograder.inside.drivers.small_models import Gradients, build, descend, gradients, loss, others
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.values import close, kind_of, largest_difference
from autograder.topics.data_parallelism import mistakes

# How far another order of summation may lead, after a few steps of training.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 0.05}


@dataclass(frozen=True)
class ExpectedGradients:
    """The gradients of one step, averaged, and those of each rank's own samples, by position in the group."""

    mean: Gradients
    local: Sequence[Gradients]

    @classmethod
    def of(cls, local: Sequence[Gradients]) -> ExpectedGradients:
        total = sum_of(local)
        return cls({name: None if g is None else g / len(local) for name, g in total.items()}, local)

    @classmethod
    def total(cls, steps: Sequence[ExpectedGradients]) -> ExpectedGradients:
        """Add up what is expected of several backwards."""
        return cls.of([sum_of([step.local[at] for step in steps]) for at in range(len(steps[0].local))])


def sum_of(parts: Sequence[Gradients]) -> Gradients:
    """Return the sum, parameter by parameter, in which None counts as zeros."""
    return {name: _sum([g for part in parts if (g := part[name]) is not None]) for name in parts[0]}


def _sum(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    return torch.stack(tensors).double().sum(0).to(tensors[0].dtype) if tensors else None


def expectations(
    model: str, seed: int, batches: Sequence[Sequence[torch.Tensor]], learning_rate: float = LEARNING_RATE
) -> list[ExpectedGradients]:
    """Train in one process with the batches of all ranks: `batches[position][step]`."""
    module = build(model, seed)
    steps = []
    for shards in zip(*batches, strict=True):
        local = []
        for shard in shards:
            module.zero_grad()
            loss(module(shard, **others(model, shard))).backward()
            local.append(gradients(module))
        steps.append(ExpectedGradients.of(local))
        for name, parameter in module.named_parameters():
            parameter.grad = steps[-1].mean.get(name)
        descend(module, learning_rate)
    return steps


def bytes_from_others(steps: Sequence[ExpectedGradients], position: int) -> int:
    """Count the bytes of the gradients that a rank cannot know alone: those that others have a part in."""
    return sum(
        gradient.nbytes
        for step in steps
        for name, gradient in step.mean.items()
        if gradient is not None
        and any(own[name] is not None for at, own in enumerate(step.local) if at != position)
    )


def wrong_gradients(got: Gradients, expected: ExpectedGradients, at: int, where: str) -> Problem | None:
    """Find the first gradient that is not the mean, and what it seems to be instead.

    Args:
        at: position of the rank in its group.
        where: rank and step, for the student.
    """
    for name, want in expected.mean.items():
        found = got.get(name)
        if _equal(found, want):
            continue
        label = f"{where}, {name}.grad"
        if found is None or want is None or found.shape != want.shape or found.dtype != want.dtype:
            return Problem(mistakes.NO_GRADIENT, f"{label}: {kind_of(want)}", kind_of(found))
        mistake, remark = _diagnose(found, want, expected.local[at][name], len(expected.local))
        wanted, shown = largest_difference(want, found)
        return Problem(mistake, f"{label}: {wanted}", f"{shown}{remark}")
    return None


def _equal(got: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    """Compare gradients; where no rank has used a parameter, None and zeros are both right."""
    if want is None:
        return got is None or not got.any()
    return got is not None and close(got, want, _TOLERANCES[want.dtype])


def _diagnose(
    got: torch.Tensor, want: torch.Tensor, local: torch.Tensor | None, world_size: int
) -> tuple[Mistake, str]:
    if world_size > 1:
        if local is not None and _equal(got, local):
            return mistakes.OWN_GRADIENT, " (this rank's own gradient)"
        if _equal(got, want * world_size):
            return mistakes.SUMMED, f" (the sum over {world_size} ranks)"
        if _equal(got, want / world_size):
            return mistakes.DIVIDED_TWICE, f" (the mean, divided by {world_size} once more)"
        factor = float((got * want).sum() / (want * want).sum())
        if abs(factor) > 1e-3 and _equal(got, want * factor):
            return mistakes.DIVIDED_WRONGLY, f" ({factor:.3g} times the mean)"
    return mistakes.WRONG_GRADIENT, ""
