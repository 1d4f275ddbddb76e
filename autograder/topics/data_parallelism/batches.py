"""Checks of exercise 04 about batches: dealt out to ranks, and cut into microbatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from autograder.inside.drivers import data_parallelism as drivers
from autograder.inside.drivers.small_models import WIDTH, Gradients, Named, build, contents, gradients
from autograder.inside.reports import as_many
from autograder.kit.case import Trial, again, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import MODIFIED, WRONG_TYPE
from autograder.kit.problem import Problem
from autograder.kit.received import named
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import difference, has_number, kind_of, same
from autograder.topics.data_parallelism import gradient_traffic as traffic
from autograder.topics.data_parallelism import mistakes
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.gradients import ExpectedGradients, wrong_gradients
from autograder.topics.data_parallelism.training import TrainingTrial
from autograder.topics.data_parallelism.wrapping import different
from fourranks.naming import counted

Microbatch = list[torch.Tensor]  # inputs and targets

MULTIPLES = (mistakes.SUMMED, mistakes.DIVIDED_TWICE, mistakes.DIVIDED_WRONGLY)
MICROBATCHES = ((3, 3, 3), (4, 3, 1), (5,))
SHARDS = (  # samples for each rank, shape of a sample, dtype
    (32, (3,), torch.float32),
    (5, (), torch.int64),
    (1, (2, 1), torch.bfloat16),
    (0, (2,), torch.float64),
)


@check(banned=BANNED)
def shard_batch(function: Code, world_sizes: Sequence[int] = (1, 2, 3, 4), seed: int = 0) -> Cases:
    """Check `shard_batch`: every rank's samples, no copy, and a refusal of uneven batches."""
    draws = Draws(seed)
    for world_size in world_sizes:
        for local_size, shape, dtype in SHARDS:
            drawn = draws.randint(-99, 100, (world_size, local_size, *shape), dtype)
            yield _sharding_trial(drawn.flatten(0, 1), world_size, partial(_wrong_shards, drawn))
        for size in (world_size - 1, 3 * world_size + 1) if world_size > 1 else ():
            batch, expected = draws.rand((size, 2)), f"a ValueError that names {size} and {world_size}"
            verify = partial(_no_refusal, size, world_size, expected)
            yield _sharding_trial(batch, world_size, verify, answered=expected)


def _sharding_trial(
    batch: torch.Tensor,
    world_size: int,
    verify: Callable[[Outcome], Problem | None],
    answered: str = Trial.answered,
) -> Trial:
    title = f"{counted(len(batch), 'sample')} for {counted(world_size, 'rank')}"
    return on_one_rank(title, (batch, world_size), verify, drivers.shard, size=len(batch), answered=answered)


def _wrong_shards(expected: torch.Tensor, outcome: Outcome) -> Problem | None:
    found: drivers.BatchShards = outcome.value
    if found.refused is not None:
        wanted = f"{counted(len(expected[0]), 'sample')} for each rank"
        return Problem(mistakes.REFUSED, wanted, found.refused)
    for rank, (want, got) in enumerate(zip(expected, as_many(found.shards, len(expected)), strict=True)):
        if not isinstance(got, torch.Tensor) or kind_of(got) != kind_of(want):
            alike = isinstance(got, torch.Tensor) and got.dtype == want.dtype
            mistake = mistakes.WRONG_SAMPLES if alike else WRONG_TYPE
            return Problem(mistake, f"rank {rank}: {kind_of(want)}", kind_of(got))
        if not same(got, want):
            wanted, shown = difference(want, got)
            return Problem(mistakes.WRONG_SAMPLES, f"rank {rank}: {wanted}", shown)
    if not found.views:
        return Problem(mistakes.COPIED, "views of the batch", "tensors with memory of their own")
    return _called(outcome)


def _called(outcome: Outcome) -> Problem | None:
    return next((traffic.unexpected(call) for call in outcome.calls if call.moves_data), None)


def _no_refusal(size: int, world_size: int, expected: str, outcome: Outcome) -> Problem | None:
    found: drivers.BatchShards = outcome.value
    if found.refused is None:
        return Problem(mistakes.UNEVEN_BATCH, expected, ", ".join(map(kind_of, found.shards)))
    if all(has_number(found.refused, number) for number in (size, world_size)):
        return None
    return Problem(mistakes.UNCLEAR_REFUSAL, expected, found.refused or "a ValueError without a text")


@check(banned=BANNED)
def accumulate(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `accumulate`: gradients, loss, one synchronization, one graph alive."""
    for setting in settings(world_sizes, seed):
        for sizes in MICROBATCHES if not setting.members else MICROBATCHES[1:2]:
            yield _accumulating(setting, sizes)
        yield again(_accumulating(setting, MICROBATCHES[0]), _accumulating(setting, MICROBATCHES[1]))


def _accumulating(setting: Setting, sizes: Sequence[int]) -> TrainingTrial:
    microbatches = [[_microbatch(size, setting.draws) for size in sizes] for _ in setting.ranks]
    seed = setting.model_seed(0)
    return setting.trial(
        f"microbatches of {', '.join(map(str, sizes))}",
        drivers.accumulate,
        lambda position, _: ("plain", seed, microbatches[position]),
        partial(_accumulated, _ExpectedAccumulation.of(seed, microbatches), max(sizes)),
        kind=TrainingTrial,
    )


def _microbatch(size: int, draws: Draws) -> Microbatch:
    inputs = draws.randn((size, WIDTH))
    return [inputs, draws.randn((size, 3), torch.float64)]


@dataclass(frozen=True)
class _ExpectedAccumulation:
    """The right result of an accumulation, and its results with frequent mistakes."""

    gradients: ExpectedGradients
    summed: ExpectedGradients  # losses are not scaled
    unweighted: ExpectedGradients  # losses are scaled by the number of microbatches
    last: ExpectedGradients  # gradients are cleared before the last microbatch
    losses: Sequence[float]  # by position
    parameters: Named

    @classmethod
    def of(cls, seed: int, microbatches: list[list[Microbatch]]) -> _ExpectedAccumulation:
        count = len(microbatches[0])
        wholes = [[[torch.cat(parts) for parts in zip(*own, strict=True)]] for own in microbatches]
        losses, whole = zip(*(_backward(seed, own) for own in wholes), strict=True)
        summed = [_backward(seed, own)[1] for own in microbatches]
        shares = [{name: g if g is None else g / count for name, g in own.items()} for own in summed]
        last = [_share_of_the_last(seed, own) for own in microbatches]
        parameters, _ = contents(build("plain", seed))
        return cls(
            ExpectedGradients.of(whole),
            ExpectedGradients.of(summed),
            ExpectedGradients.of(shares),
            ExpectedGradients.of(last),
            losses,
            parameters,
        )


def _backward(seed: int, microbatches: Sequence[Microbatch]) -> tuple[float, Gradients]:
    """Return the sum of the microbatches' mean losses and of their gradients."""
    module = build("plain", seed)
    losses = [drivers.mean_loss(module(inputs), targets) for inputs, targets in microbatches]
    total = sum(losses[1:], losses[0])
    total.backward()
    return total.item(), gradients(module)


def _share_of_the_last(seed: int, microbatches: Sequence[Microbatch]) -> Gradients:
    """Return the gradients that the last microbatch contributes."""
    share = len(microbatches[-1][0]) / sum(len(inputs) for inputs, _ in microbatches)
    _, found = _backward(seed, microbatches[-1:])
    return {name: g if g is None else g * share for name, g in found.items()}


def _accumulated(
    expected: _ExpectedAccumulation, largest: int, at: int, where: str, outcome: Outcome
) -> Problem | None:
    found: drivers.Accumulated = outcome.value
    if found.samples > largest:  # in one backward, which the next rule would count as several
        wanted = f"{where}: activations of one microbatch at a time, of at most {counted(largest, 'sample')}"
        return Problem(mistakes.GRAPHS_HELD, wanted, f"those of {found.samples}")
    if problem := _synchronized_wrongly(found, where) or _communicated(outcome, where):
        return problem
    if problem := different(expected.parameters, found.parameters, mistakes.WEIGHTS_MOVED, where):
        return problem
    if not found.intact:
        return Problem(MODIFIED, f"{where}: `microbatches` as they were", "others, or fewer of them")
    if problem := wrong_gradients(found.gradients, expected.gradients, at, where):
        if problem.mistake in MULTIPLES:  # of the losses, as the wrapper has averaged
            problem = replace(problem, mistake=mistakes.SHARES_WRONG)
        return _scaled_wrongly(found.gradients, expected, at) or problem
    if (count := found.finished) != 1:
        kind = mistakes.FINISHED_TOO_OFTEN if count else mistakes.NOT_FINISHED
        return Problem(kind, f"{where}: finish_gradient_synchronization() is called once", f"{count} times")
    return _wrong_loss(found, expected.losses[at], where)


def _synchronized_wrongly(found: drivers.Accumulated, where: str) -> Problem | None:
    for count, what in zip(found.synchronizations, ("forward", "backward"), strict=True):
        if count != 1:
            kind = mistakes.SYNCHRONIZED_TOO_OFTEN if count else mistakes.NEVER_SYNCHRONIZED
            expected = f"{where}: one synchronization for all microbatches, one {what} outside of no_sync()"
            return Problem(kind, expected, f"{count}")
    return None


def _communicated(outcome: Outcome, where: str) -> Problem | None:
    """Find a call that is none of the wrapper's."""
    (synchronization,) = stretches(outcome, "synchronizing", 1)
    of_wrapper = synchronization.until("synchronized")
    for call in outcome.calls:
        if call.moves_data and call not in of_wrapper:
            return Problem(mistakes.SENT_BESIDE_THE_WRAPPER, f"{where}: no other communication", named(call))
    return None


def _scaled_wrongly(got: Gradients, expected: _ExpectedAccumulation, at: int) -> Problem | None:
    """Tell when the gradients are those of another sum of the same losses."""
    for kind, wrong, text in (
        (mistakes.EARLIER_MICROBATCHES_LOST, expected.last, "the last microbatch alone"),
        (mistakes.LOSSES_SUMMED, expected.summed, "the sum of the microbatches' mean losses"),
        (mistakes.LOSSES_UNWEIGHTED, expected.unweighted, "the mean of the microbatches' mean losses"),
    ):
        if wrong_gradients(got, wrong, at, "") is None:
            return Problem(kind, "gradients of the mean loss over all samples", f"those of {text}")
    return None


def _wrong_loss(found: drivers.Accumulated, want: float, where: str) -> Problem | None:
    expected = f"{where}: {want:.6g} returned, the mean loss over this rank's samples"
    if not isinstance(found.loss, float):
        return Problem(WRONG_TYPE, expected, kind_of(found.loss))
    if not abs(found.loss - want) <= 1e-5 * (1 + abs(want)):  # true of NaN, too
        return Problem(mistakes.WRONG_LOSS, expected, f"{found.loss:.6g}")
    if found.attached:
        return Problem(mistakes.ATTACHED, f"{where}: a loss without a graph", "it still requires a gradient")
    return None
