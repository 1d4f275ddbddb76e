"""Check of exercise 06's cross-entropy over a vocabulary that is cut over ranks.

The result of one process with all logits is computed here, by torch's own function.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn import functional as F

from autograder.inside.drivers import tensor_parallelism as drivers
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import MODIFIED, WRONG_TYPE, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.topics.tensor_parallelism import mistakes
from autograder.topics.tensor_parallelism.banned import BANNED
from autograder.topics.tensor_parallelism.differentiable_collectives import cut_graph
from autograder.topics.tensor_parallelism.shards import Cut, Tensors
from autograder.topics.tensor_parallelism.traffic import (
    AllowedCollective,
    AllowedTraffic,
    excess,
    least_received,
)
from autograder.topics.tensor_parallelism.trials import Outcomes, ShardedTrial, names, together

PADDING = -100  # F.cross_entropy's ignore_index
VOCABULARY = Cut(-1)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}  # sums over the ranks may come in any order
NUM_ALL_REDUCES = 3  # the largest logit, the sum of exponentials, the target's logit


@check(banned=BANNED)
def vocab_parallel_cross_entropy(
    function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> Cases:
    """Check `vocab_parallel_cross_entropy`: the loss, its gradient, and that no logits are gathered."""
    for setting in settings(world_sizes, seed):
        size, draws = 4 * len(setting.ranks), setting.draws
        plain = draws.randn((5, size), torch.float64)
        target = _targets((5,), size, draws)
        yield _trial(setting, "5 tokens", plain, target)
        deep = draws.randn((2, 3, size), torch.float32), _targets((2, 3), size, draws)
        yield _trial(setting, "2 sequences of 3 tokens, float32", *deep)
        yield _trial(setting, "large logits", 1000 * plain, target, "large")
        padded = torch.where(torch.arange(5) % 2 == 0, target, PADDING)
        yield _trial(setting, f"targets of {PADDING}", plain, padded, "padding")
        if len(setting.ranks) > 1:
            masked = plain.clone()
            masked[..., -4:] = -torch.inf
            # The last shard of the vocabulary stands for no token: sizes are filled up until they divide.
            yield _trial(setting, "a shard of -inf", masked, target % (size - 4), "empty shard")


def _targets(shape: tuple[int, ...], size: int, draws: Draws) -> torch.Tensor:
    """Draw targets, the first and the last of the vocabulary among them."""
    targets = draws.randint(0, size, shape).flatten()
    targets[0], targets[-1] = 0, size - 1
    return targets.view(shape)


def _trial(setting: Setting, what: str, logits: torch.Tensor, target: torch.Tensor, *traits: str) -> Trial:
    num_ranks = len(setting.ranks)
    logits = logits.clone().requires_grad_()
    loss = _loss(logits, target)
    (loss * drivers.SCALE).backward()
    assert logits.grad is not None
    shards = VOCABULARY.parts(logits.detach(), num_ranks)
    return setting.trial(
        what,
        drivers.cross_entropy,
        lambda at, _: (shards[at], target),
        kind=ShardedTrial,
        verify=together(partial(_examine, logits.detach(), target, loss.detach(), logits.grad)),
        traits=traits,
        received=lambda _: least_received(_traffic(logits, target), num_ranks),
    )


def _traffic(logits: torch.Tensor, target: torch.Tensor) -> AllowedTraffic:
    nbytes = target.numel() * logits.itemsize
    return AllowedTraffic(forward=(AllowedCollective("all_reduce", nbytes, NUM_ALL_REDUCES),))


def _loss(logits: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction=reduction)


def _examine(
    logits: torch.Tensor, target: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor, outcomes: Outcomes
) -> Problem | None:
    n, ranks = len(outcomes), names(outcomes)
    found: list[drivers.Loss] = [outcome.value for _, outcome in outcomes]
    losses = [own.loss for own in found]
    parts, traffic = VOCABULARY.parts(gradient, n), _traffic(logits, target)
    known = [
        (mistakes.GRADIENT_OF_EVERY_RANK_ADDED, [part * n for part in parts]),
        (mistakes.GRADIENT_NOT_SCALED, [part / drivers.SCALE for part in parts]),
    ]
    near = TOLERANCE[logits.dtype]
    gradients = Tensors("gradient of the logits", parts, mistakes.WRONG_GRADIENT_OF_LOGITS, known, near)
    usual = _mistakes(logits, target, n)
    value = Tensors("loss", [loss] * n, _otherwise(losses, logits), usual, near, absent=WRONG_TYPE)
    return (
        _modified("logits_shard", VOCABULARY.parts(logits, n)).wrong([own.logits for own in found], ranks)
        or _modified("target", [target] * n).wrong([own.target for own in found], ranks)
        or value.wrong(losses, ranks)
        or cut_graph(outcomes, "a loss")
        or gradients.wrong([own.gradient for own in found], ranks)
        or first(excess(traffic, outcome, n, rank) for rank, outcome in outcomes)
    )


def _modified(name: str, given: Sequence[torch.Tensor]) -> Tensors:
    return Tensors(f"{name} after the call", given, MODIFIED, tolerance=0.0)


def _otherwise(found: Sequence[object], logits: torch.Tensor) -> Mistake:
    """Blame exp for a loss that is not finite only where it can be: small logits have another reason."""
    finite = all(isinstance(loss, torch.Tensor) and bool(loss.isfinite().all()) for loss in found)
    small = bool(logits.exp().isfinite().all() and logits.isfinite().all())
    return mistakes.WRONG_CROSS_ENTROPY if finite or small else mistakes.CROSS_ENTROPY_NOT_FINITE


def _mistakes(
    logits: torch.Tensor, target: torch.Tensor, num_ranks: int
) -> list[tuple[Mistake, Sequence[torch.Tensor]]]:
    total = _loss(logits, target, "sum")
    shards = VOCABULARY.parts(logits, num_ranks)
    of_target = logits.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    own = [
        ((shard.logsumexp(-1) - of_target) * (target >= 0)).sum() / (target >= 0).sum() for shard in shards
    ]
    return [
        (mistakes.PADDING_COUNTED, [total / target.numel()] * num_ranks),
        (mistakes.LOSSES_ADDED_UP, [total] * num_ranks),
        (mistakes.OWN_LOGITS_ONLY, own),
    ]
