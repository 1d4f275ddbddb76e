"""Check of exercise 06's cross-entropy over a vocabulary that is cut over ranks.

What one process computes from all logits is computed here, by torch's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch.nn import functional as F

from autograder.inside.drivers import tensor_parallelism as drivers
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.student import Function, Outcome
from autograder.topics.tensor_parallelism.activation_traffic import (
    Collective,
    Traffic,
    excess,
    least_received,
)
from autograder.topics.tensor_parallelism.banned import BANNED
from autograder.topics.tensor_parallelism.mistakes import (
    CROSS_ENTROPY_NOT_FINITE,
    CUT_GRAPH,
    GRADIENT_NOT_SCALED,
    GRADIENT_OF_EVERY_RANK_ADDED,
    LOSSES_ADDED_UP,
    OWN_LOGITS_ONLY,
    PADDING_COUNTED,
    WRONG_CROSS_ENTROPY,
    WRONG_GRADIENT_OF_LOGITS,
)
from autograder.topics.tensor_parallelism.shards import Cut, Tensors
from autograder.topics.tensor_parallelism.trials import by_rank, names, trial

PADDING = -100  # F.cross_entropy's ignore_index
VOCABULARY = Cut(-1)
NUM_ALL_REDUCES = 3  # the largest logit, the sum of exponentials, the target's logit


def vocab_parallel_cross_entropy(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `vocab_parallel_cross_entropy`: the loss, its gradient, and that no logits are gathered.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("vocab_parallel_cross_entropy", function, _cases(world_sizes, seed), seed, BANNED)


def _cases(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        size, draws = 4 * len(setting.ranks), setting.draws
        plain = draws.randn((5, size), torch.float64)
        target = _targets((5,), size, draws)
        yield _trial(setting, "5 tokens", plain, target)
        deep = draws.randn((2, 3, size), torch.float64), _targets((2, 3), size, draws)
        yield _trial(setting, "2 sequences of 3 tokens", *deep)
        yield _trial(setting, "large logits", 1000 * plain, target, "large")
        padded = torch.where(torch.arange(5) % 2 == 0, target, PADDING)
        yield _trial(setting, f"targets of {PADDING}", plain, padded, "padding")
        if len(setting.ranks) > 1:
            masked = plain.clone()
            masked[..., -4:] = -torch.inf
            # The last shard of the vocabulary stands for no token: sizes are filled up until they divide.
            yield _trial(setting, "a shard of -inf", masked, target % (size - 4), "empty shard")


def _targets(shape: tuple[int, ...], size: int, draws: Draws) -> torch.Tensor:
    """Targets, the first and the last of the vocabulary among them."""
    targets = draws.randint(0, size, shape).flatten()
    targets[0], targets[-1] = 0, size - 1
    return targets.view(shape)


def _trial(setting: Setting, what: str, logits: torch.Tensor, target: torch.Tensor, *traits: str) -> Trial:
    num_ranks = len(setting.ranks)
    logits = logits.clone().requires_grad_()
    loss = _loss(logits, target)
    (loss * drivers.SCALE).backward()
    shards = VOCABULARY.parts(logits.detach(), num_ranks)
    return trial(
        setting,
        what,
        drivers.cross_entropy,
        lambda at: (shards[at], target),
        partial(_examine, logits.detach(), target, loss.detach(), logits.grad),
        traits,
        least_received(_traffic(logits, target), num_ranks),
    )


def _traffic(logits: torch.Tensor, target: torch.Tensor) -> Traffic:
    nbytes = target.numel() * logits.itemsize
    return Traffic(forward=(Collective("all_reduce", nbytes, NUM_ALL_REDUCES),))


def _loss(logits: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction=reduction)


def _examine(
    logits: torch.Tensor,
    target: torch.Tensor,
    loss: torch.Tensor,
    gradient: torch.Tensor,
    outcomes: Sequence[tuple[str, Outcome]],
) -> Problem | None:
    n, ranks = len(outcomes), names(outcomes)
    found = by_rank(outcomes, "loss")
    wrong_loss = Tensors("loss", [loss] * n, _otherwise(found), _mistakes(logits, target, n))
    if problem := wrong_loss.wrong(found, ranks):
        return problem
    for rank, outcome in outcomes:
        if not outcome.value["differentiable"]:
            return Problem(CUT_GRAPH, f"{rank}: a loss with a grad_fn", "one without")
    parts = VOCABULARY.parts(gradient, n)
    mistakes = [
        (GRADIENT_OF_EVERY_RANK_ADDED, [part * n for part in parts]),
        (GRADIENT_NOT_SCALED, [part / drivers.SCALE for part in parts]),
    ]
    wrong_gradient = Tensors("gradient of the logits", parts, WRONG_GRADIENT_OF_LOGITS, mistakes)
    traffic = _traffic(logits, target)
    return wrong_gradient.wrong(by_rank(outcomes, "gradient"), ranks) or first(
        excess(traffic, outcome, n, rank) for rank, outcome in outcomes
    )


def _otherwise(found: Sequence[object]) -> Mistake:
    finite = all(isinstance(loss, torch.Tensor) and bool(loss.isfinite().all()) for loss in found)
    return WRONG_CROSS_ENTROPY if finite else CROSS_ENTROPY_NOT_FINITE


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
        (PADDING_COUNTED, [total / target.numel()] * num_ranks),
        (LOSSES_ADDED_UP, [total] * num_ranks),
        (OWN_LOGITS_ONLY, own),
    ]
