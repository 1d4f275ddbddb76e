"""Checks of exercise 04 about batches: dealt out to ranks, and cut into microbatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from autograder.inside.drivers import data_parallelism as drivers
from autograder.inside.drivers.small_models import WIDTH, build, gradients
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.mistakes import WRONG_TYPE
from autograder.kit.problem import Problem, counted
from autograder.kit.settings import WORLD_SIZES, settings
from autograder.kit.student import Function, Outcome
from autograder.kit.values import difference, kind_of, same
from autograder.topics.data_parallelism import gradient_traffic as traffic
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.gradients import Expected, wrong_gradients
from autograder.topics.data_parallelism.mistakes import (
    ATTACHED,
    COPIED,
    FINISHED_TOO_OFTEN,
    GRAPHS_HELD,
    LOSSES_SUMMED,
    LOSSES_UNWEIGHTED,
    NEVER_SYNCHRONIZED,
    NOT_FINISHED,
    REFUSED,
    SYNCHRONIZED_TOO_OFTEN,
    UNCLEAR_REFUSAL,
    UNEVEN_BATCH,
    WRONG_LOSS,
    WRONG_SAMPLES,
)
from autograder.topics.data_parallelism.training import Training

MICROBATCHES = ((3, 3, 3), (4, 3, 1), (5,))
SHARDS = (  # samples for each rank, shape of a sample, dtype
    (32, (3,), torch.float32),
    (5, (), torch.int64),
    (0, (2,), torch.float64),
)

Code = Callable | Function


def shard_batch(function: Code, world_sizes: Sequence[int] = (1, 2, 3, 4), seed: int = 0) -> None:
    """Checks `shard_batch`: every rank's samples, no copy, and a refusal of uneven batches.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("shard_batch", function, _sharding(world_sizes, seed), seed, BANNED)


def _sharding(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    draws = Draws(seed)
    for world_size in world_sizes:
        for local_size, shape, dtype in SHARDS:
            drawn = draws.randint(-99, 100, (world_size, local_size, *shape), dtype)
            yield _sharding_trial(drawn.flatten(0, 1), world_size, partial(_wrong_shards, drawn))
        for size in (world_size - 1, 3 * world_size + 1) if world_size > 1 else ():
            batch = draws.rand((size, 2))
            yield _sharding_trial(batch, world_size, partial(_no_refusal, size, world_size))


def _sharding_trial(batch: torch.Tensor, world_size: int, verify: Callable) -> Trial:
    return Trial(
        title=f"{counted(len(batch), 'sample')} for {counted(world_size, 'rank')}",
        inputs=[(batch, world_size)],
        driver=drivers.shard,
        verify=lambda outcomes: verify(outcomes[0]),
        size=len(batch),
        backends=("gloo",),
    )


def _wrong_shards(expected: torch.Tensor, outcome: Outcome) -> Problem | None:
    if "refused" in outcome.value:
        return Problem(
            REFUSED, f"{counted(len(expected[0]), 'sample')} for each rank", outcome.value["refused"]
        )
    for rank, (want, got) in enumerate(zip(expected, outcome.value["shards"], strict=True)):
        if kind_of(got) != kind_of(want):
            return Problem(WRONG_SAMPLES, f"rank {rank}: {kind_of(want)}", kind_of(got))
        if not same(got, want):
            wanted, found = difference(want, got)
            return Problem(WRONG_SAMPLES, f"rank {rank}: {wanted}", found)
    if not outcome.value["views"]:
        return Problem(COPIED, "views of the batch", "tensors with memory of their own")
    return _called(outcome)


def _called(outcome: Outcome) -> Problem | None:
    return next((traffic.unexpected(call) for call in outcome.calls if call.moves_data), None)


def _no_refusal(size: int, world_size: int, outcome: Outcome) -> Problem | None:
    expected = f"a ValueError that names {size} and {world_size}"
    if "refused" not in outcome.value:
        return Problem(UNEVEN_BATCH, expected, ", ".join(map(kind_of, outcome.value["shards"])))
    message = outcome.value["refused"]
    if str(size) in message and str(world_size) in message:
        return None
    return Problem(UNCLEAR_REFUSAL, expected, message or "a ValueError without a text")


def accumulate(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `accumulate`: gradients, loss, one synchronization, one graph alive.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("accumulate", function, _accumulating(world_sizes, seed), seed, BANNED)


def _accumulating(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        for sizes in MICROBATCHES if not setting.members else MICROBATCHES[1:2]:
            microbatches = [[_microbatch(size, setting.draws) for size in sizes] for _ in setting.ranks]
            model_seed = setting.model_seed(0)
            expected = _Accumulated.of(model_seed, microbatches)
            yield setting.trial(
                f"microbatches of {', '.join(map(str, sizes))}",
                drivers.accumulate,
                lambda p, _, seed=model_seed, own=microbatches: ("plain", seed, own[p]),
                partial(_accumulated, expected),
                kind=Training,
            )


def _microbatch(size: int, draws: Draws) -> list[torch.Tensor]:
    inputs = draws.randn((size, WIDTH))
    return [inputs, draws.randn((size, 3), torch.float64)]


@dataclass(frozen=True)
class _Accumulated:
    """What an accumulation must come to, and what it comes to with two frequent mistakes."""

    gradients: Expected
    summed: Expected  # losses are not scaled
    unweighted: Expected  # losses are scaled by the number of microbatches
    losses: Sequence[float]  # by position

    @classmethod
    def of(cls, seed: int, microbatches: Sequence[Sequence[Sequence[torch.Tensor]]]) -> _Accumulated:
        count = len(microbatches[0])
        wholes = [[[torch.cat(parts) for parts in zip(*own, strict=True)]] for own in microbatches]
        losses, whole = zip(*(_backward(seed, own) for own in wholes), strict=True)
        summed = [_backward(seed, own)[1] for own in microbatches]
        shares = [{name: gradient / count for name, gradient in own.items()} for own in summed]
        return cls(Expected.of(whole), Expected.of(summed), Expected.of(shares), losses)


def _backward(seed: int, microbatches: Sequence[Sequence[torch.Tensor]]) -> tuple[float, dict]:
    """The sum of the microbatches' mean losses and of their gradients."""
    module = build("plain", seed)
    total = sum((module(inputs) - targets).square().mean() for inputs, targets in microbatches)
    total.backward()
    return total.item(), gradients(module)


def _accumulated(expected: _Accumulated, at: int, where: str, outcome: Outcome) -> Problem | None:
    value = outcome.value
    if (count := value["synchronizations"]) != 1:
        kind = SYNCHRONIZED_TOO_OFTEN if count else NEVER_SYNCHRONIZED
        return Problem(kind, f"{where}: one synchronization for all microbatches", f"{count}")
    if value["graphs"] > 1:
        graphs = f"those of {value['graphs']}"
        return Problem(GRAPHS_HELD, f"{where}: activations of one microbatch at a time", graphs)
    if problem := wrong_gradients(value["gradients"], expected.gradients, at, where):
        return _scaled_wrongly(value["gradients"], expected, at) or problem
    if (count := value["finished"]) != 1:
        kind = FINISHED_TOO_OFTEN if count else NOT_FINISHED
        return Problem(kind, f"{where}: finish_gradient_synchronization() is called once", f"{count} times")
    return _wrong_loss(value, expected.losses[at], where)


def _scaled_wrongly(got: dict, expected: _Accumulated, at: int) -> Problem | None:
    """When the gradients are those of another sum of the same losses."""
    for kind, wrong, text in (
        (LOSSES_SUMMED, expected.summed, "the sum of the microbatches' mean losses"),
        (LOSSES_UNWEIGHTED, expected.unweighted, "the mean of the microbatches' mean losses"),
    ):
        if wrong_gradients(got, wrong, at, "") is None:
            return Problem(kind, "gradients of the mean loss over all samples", f"those of {text}")
    return None


def _wrong_loss(value: dict, want: float, where: str) -> Problem | None:
    expected = f"{where}: {want:.6g} returned, the mean loss over this rank's samples"
    if not isinstance(value["loss"], float):
        return Problem(WRONG_TYPE, expected, kind_of(value["loss"]))
    if abs(value["loss"] - want) > 1e-5 * (1 + abs(want)):
        return Problem(WRONG_LOSS, expected, f"{value['loss']:.6g}")
    if value["attached"]:
        return Problem(ATTACHED, f"{where}: a loss without a graph", "it still requires a gradient")
    return None
