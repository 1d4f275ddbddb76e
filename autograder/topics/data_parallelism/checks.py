"""Checks of exercise 04: training on many ranks must equal training in one process, at a price that is known.

The serial run is computed here; the ranks' models start from other random numbers than it does, but for
rank 0. The limits of each step's traffic are in `autograder.topics.data_parallelism.gradient_traffic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from autograder.inside.drivers import data_parallelism as drivers
from autograder.inside.drivers.small_models import Gradients, build, contents, model_bytes
from autograder.inside.reports import as_many
from autograder.kit.case import Trial, again
from autograder.kit.check import Cases, Code, check
from autograder.kit.problem import Problem, first
from autograder.kit.received import named
from autograder.kit.settings import WORLD_SIZES, Setting, settings, settings_of
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Outcome
from autograder.topics.data_parallelism import gradient_traffic as traffic
from autograder.topics.data_parallelism import mistakes
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.gradients import (
    ExpectedGradients,
    bytes_from_others,
    expectations,
    sum_of,
    wrong_gradients,
)
from autograder.topics.data_parallelism.training import KIND_OF_MODEL, TrainingTrial, draw_batches
from autograder.topics.data_parallelism.wrapping import different, wrong_start

STEPS = 3
DEFAULT_BUCKET = 25 << 20
# Gradients fill about three buckets, one of "plain" to the last byte. Where some are unused each has a bucket
# of its own, so that it shows in which order they are sent. A layer in float64 takes two, and in float32 one.
BUCKET_BYTES: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(KIND_OF_MODEL, (144,)),
    "plain": (DEFAULT_BUCKET, 144, 119),
    "unused": (0,),
    "mixed": (100, 120),
}
DEEP_BYTES = 4 << 20  # the gradients of the "deep" model
SLACK_BYTES = 1 << 16  # that a wrapper may hold besides gradients


# --- average_gradients


@check(banned=BANNED)
def average_gradients(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `average_gradients` on models with every kind of parameter: values, bytes, and calls."""
    for setting in settings(world_sizes, seed):
        for model in KIND_OF_MODEL if not setting.members else ("plain", "unused"):
            yield _averaging_trial(setting, model)
        yield again(_averaging_trial(setting, "plain"), _averaging_trial(setting, "plain"))


def _averaging_trial(setting: Setting, model: str) -> TrainingTrial:
    batches, seed = draw_batches(setting, 1), setting.model_seed(0)
    steps = expectations(model, seed, batches)
    return setting.trial(
        KIND_OF_MODEL[model],
        drivers.average,
        lambda position, _: (model, seed, batches[position][0]),
        partial(_averaged, steps[0], model, seed),
        model=model,
        received=partial(bytes_from_others, steps),
        kind=TrainingTrial,
    )


def _averaged(
    step: ExpectedGradients, model: str, seed: int, at: int, where: str, outcome: Outcome
) -> Problem | None:
    calls = [call for call in outcome.calls if call.moves_data]
    allowed = traffic.one_by_one(build(model, seed))
    found: drivers.Averaged = outcome.value
    parameters, buffers = contents(build(model, seed))
    return (
        traffic.broken_rules(calls, where)
        or traffic.too_much(calls, allowed, where)
        or wrong_gradients(found.gradients, step, at, where)
        or different(parameters | buffers, found.contents, mistakes.WEIGHTS_MOVED, where)
        or traffic.too_many(calls, allowed, where)
    )


# --- the wrappers


@check("DistributedDataParallel", banned=BANNED)
def distributed_data_parallel(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `DistributedDataParallel`: training equals one process, with overlap and within its budget."""
    yield from _wrapping(world_sizes, seed, dict.fromkeys(KIND_OF_MODEL, (None,)), held=0)


@check("BucketedDistributedDataParallel", banned=BANNED)
def bucketed_distributed_data_parallel(
    code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> Cases:
    """Check `BucketedDistributedDataParallel`: as for the plain one, and one all-reduce for each bucket."""
    yield from _wrapping(world_sizes, seed, BUCKET_BYTES, DEEP_BYTES)


def _wrapping(
    world_sizes: Sequence[int], seed: int, bucket_bytes: Mapping[str, Sequence[int | None]], held: int
) -> Iterator[Trial]:
    """Make trials of every kind of parameter with buckets of these sizes (None: no buckets)."""
    for setting in settings(world_sizes, seed):
        for model in _models(setting):
            for size in bucket_bytes[model]:
                yield _training_trial(setting, model, size)
        for model in ("plain", "unused"):
            yield _pause_trial(setting, model, _options(bucket_bytes["buffers"][0]))
    for setting in settings_of(2, world_sizes, seed):
        yield _memory_trial(setting, held)


def _models(setting: Setting) -> list[str]:
    """List all models at few ranks, half of the special ones at many, and what a group may get wrong."""
    if setting.members:
        return ["buffers", "unused"]
    return [
        model
        for number, model in enumerate(KIND_OF_MODEL)
        if setting.tries(number) or model in ("plain", "unused")
    ]


def _options(bucket_bytes: int | None) -> dict[str, float]:
    if bucket_bytes is None or bucket_bytes == DEFAULT_BUCKET:
        return {}
    return {"bucket_size_mb": bucket_bytes / 2**20}


@dataclass(frozen=True)
class _TrainingRun:
    """A model that is trained, by the seed of rank 0, and what must come of it."""

    model: str
    seed: int
    expected: Sequence[ExpectedGradients]
    bucket_bytes: int | None

    def wrapped(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Compare names with those of torch's own wrapper, and everything with rank 0."""
        return wrong_start(build(self.model, self.seed), len(self.expected), outcome, where)

    def trained(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Compare each step's gradients, and what was communicated for them."""
        parts = stretches(outcome, "began", len(self.expected))
        found = as_many(outcome.value.steps, len(parts))
        steps = zip(self.expected, found, parts, strict=True)
        return first(
            self._step(want, got, part, at, f"{where}, step {number}")
            for number, (want, got, part) in enumerate(steps, 1)
        )

    def _step(
        self, want: ExpectedGradients, got: Gradients, part: Stretch, at: int, where: str
    ) -> Problem | None:
        module, ordered = build(self.model, self.seed), self.model == "plain"
        calls, size = [call for call in part.calls if call.moves_data], self.bucket_bytes
        allowed = traffic.one_by_one(module) if size is None else traffic.in_buckets(module, size)
        problem = (
            traffic.broken_rules(calls, where)
            or traffic.too_much(calls, allowed, where)
            or wrong_gradients(got, want, at, where)
        )
        if problem or (len(want.local) == 1 and not calls):  # alone, nobody has to communicate
            return problem
        if size is None:
            problem = traffic.wrong_number(calls, allowed, where)
        else:
            problem = traffic.wrong_buckets(calls, allowed, size, ordered, where)
        return problem or (traffic.late(calls, allowed, part, where) if ordered else None)


def _training_trial(setting: Setting, model: str, bucket_bytes: int | None) -> TrainingTrial:
    steps = STEPS if model == "plain" else 2
    batches, model_seed = draw_batches(setting, steps), setting.model_seed(setting.ranks[0])
    options = _options(bucket_bytes)
    size = f", buckets of {bucket_bytes} bytes" if options else ""
    run = _TrainingRun(model, model_seed, expectations(model, model_seed, batches), bucket_bytes)
    return setting.trial(
        KIND_OF_MODEL[model] + size,
        drivers.train,
        lambda p, rank: (model, setting.model_seed(rank), batches[p], options),
        run.wrapped,
        run.trained,
        model=model,
        received=lambda p: bytes_from_others(run.expected, p) + (model_bytes(model) if p else 0),
        kind=TrainingTrial,
    )


def _pause_trial(setting: Setting, model: str, options: dict[str, float]) -> TrainingTrial:
    batches, model_seed = draw_batches(setting, STEPS), setting.model_seed(setting.ranks[0])
    expected = expectations(model, model_seed, batches, learning_rate=0.0)
    return setting.trial(
        f"{KIND_OF_MODEL[model]}, no_sync for {STEPS - 1} of {STEPS} backwards",
        drivers.pause,
        lambda p, rank: (model, setting.model_seed(rank), batches[p], options),
        partial(_paused, expected),
        model=model,
        received=partial(bytes_from_others, expected[:2]),  # two of the steps are averaged
        kind=TrainingTrial,
    )


def _paused(expected: Sequence[ExpectedGradients], at: int, where: str, outcome: Outcome) -> Problem | None:
    found: drivers.Paused = outcome.value
    (paused,) = stretches(outcome, "paused", 1)
    sent = paused.until("resumed")
    if sent:
        return Problem(mistakes.SENT_IN_NO_SYNC, f"{where}: nothing is sent in no_sync()", named(sent[0]))
    inside = ExpectedGradients.total(expected[:-1])
    if problem := wrong_gradients(found.inside, ExpectedGradients(inside.local[at], inside.local), at, where):
        return Problem(mistakes.LOST_IN_NO_SYNC, f"{problem.expected} in no_sync()", problem.got)
    if problem := _wrong_after_no_sync(expected, found.after, at, where):
        return problem
    if not found.adds_up:
        asked = f"{where}: any number of backwards in no_sync(), one after another"
        return Problem(mistakes.REFUSED_IN_NO_SYNC, asked, "a RuntimeError at the second")
    after = f"{where}, after an exception in no_sync"
    if problem := wrong_gradients(found.recovered, expected[0], at, after):
        return Problem(mistakes.NO_SYNC_STAYS_ON, problem.expected, problem.got)
    if not found.refused:
        asked = f"{where}: a RuntimeError when backward runs twice before finish_gradient_synchronization()"
        mistake = mistakes.ANOTHER_ERROR if found.raised else mistakes.READY_TWICE
        return Problem(mistake, asked, found.raised or "no error")
    return None


def _wrong_after_no_sync(
    expected: Sequence[ExpectedGradients], got: Gradients, at: int, where: str
) -> Problem | None:
    """Find what is wrong with the average of gradients of which all but the last were accumulated."""
    total, last = ExpectedGradients.total(expected), expected[-1]
    problem = wrong_gradients(got, total, at, f"{where}, after no_sync")
    if problem is None:
        return None
    partly = sum_of([ExpectedGradients.total(expected[:-1]).local[at], last.mean])
    used_last = [
        {name: gradient if used[name] is not None else None for name, gradient in own.items()}
        for own, used in zip(total.local, last.local, strict=True)
    ]
    for mistake, made in (
        (mistakes.PARTLY_AVERAGED, ExpectedGradients(partly, total.local)),
        (mistakes.LOST_AFTER_NO_SYNC, ExpectedGradients.of(used_last)),
    ):
        if wrong_gradients(got, made, at, where) is None:
            return Problem(mistake, problem.expected, problem.got)
    return problem


def _memory_trial(setting: Setting, held: int) -> TrainingTrial:
    batch = torch.zeros(4, 512)
    options = {"bucket_size_mb": 2.0} if held else {}
    return setting.trial(
        f"memory, gradients of {DEEP_BYTES:,} bytes",
        drivers.hold,
        lambda _, rank: (setting.model_seed(rank), batch, options),
        partial(_held, held),
        model="deep",
        kind=TrainingTrial,
    )


def _held(limit: int, at: int, where: str, outcome: Outcome) -> Problem | None:
    earlier, held = outcome.value  # bytes
    if held - earlier >= DEEP_BYTES:
        expected = f"{where}: {earlier:,} bytes held, also after {drivers.REPEATS} more steps"
        return Problem(mistakes.MEMORY_GROWS, expected, f"{held:,} bytes")
    if held > limit + SLACK_BYTES:
        what = "one copy of the gradients" if limit else "nothing"
        expected = f"{where}: {what} held between steps, {limit:,} bytes"
        return Problem(mistakes.MEMORY, expected, f"{held:,} bytes")
    return None
