"""Checks of exercise 04: training on many ranks must equal training in one process, at a price that is known.

The serial run is computed here; the ranks' models start from other random numbers than it does, but for
rank 0. What each step may communicate is in `autograder.topics.data_parallelism.gradient_traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from autograder.inside.drivers import data_parallelism as drivers
from autograder.inside.drivers.small_models import build, contents, model_bytes
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Function, Outcome
from autograder.topics.data_parallelism import gradient_traffic as traffic
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.gradients import (
    Expected,
    bytes_from_others,
    expectations,
    sum_of,
    wrong_gradients,
)
from autograder.topics.data_parallelism.mistakes import (
    LOST_IN_NO_SYNC,
    MEMORY,
    MEMORY_GROWS,
    NO_SYNC_STAYS_ON,
    PARTLY_AVERAGED,
    READY_TWICE,
    SENT_IN_NO_SYNC,
    WEIGHTS_MOVED,
)
from autograder.topics.data_parallelism.training import Training, draw_batches
from autograder.topics.data_parallelism.wrapping import different, wrong_start

STEPS = 3
KIND_OF_MODEL = {
    "plain": "three layers",
    "tied": "tied parameters",
    "frozen": "frozen parameters",
    "unused": "unused parameters",
    "empty": "an empty parameter",
    "mixed": "three dtypes",
    "buffers": "buffers",
}
DEFAULT_BUCKET = 25 << 20
# Gradients fill about three buckets, one of "plain" to the last byte. Where some are unused each has a bucket
# of its own, so that it shows in which order they are sent.
BUCKET_BYTES = dict.fromkeys(KIND_OF_MODEL, (144,)) | {"plain": (DEFAULT_BUCKET, 144, 0), "unused": (0,)}
DEEP_BYTES = 4 << 20  # the gradients of the "deep" model
SLACK_BYTES = 1 << 16  # what a wrapper may hold besides gradients

Code = Callable | Function


# --- average_gradients
# ----------------------------------------------------------------------------


def average_gradients(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `average_gradients` on models with every kind of parameter: values, bytes, and calls.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("average_gradients", function, _averaging(world_sizes, seed), seed, BANNED)


def _averaging(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        for model in KIND_OF_MODEL if not setting.members else ("plain", "unused"):
            batches, model_seed = draw_batches(setting, 1), setting.model_seed(0)
            steps = expectations(model, model_seed, batches)
            yield setting.trial(
                KIND_OF_MODEL[model],
                drivers.average,
                lambda p, _, batches=batches, model=model, s=model_seed: (model, s, batches[p][0]),
                partial(_averaged, steps[0], model, model_seed),
                model=model,
                received=partial(bytes_from_others, steps),
                kind=Training,
            )


def _averaged(step: Expected, model: str, seed: int, at: int, where: str, outcome: Outcome) -> Problem | None:
    calls = [call for call in outcome.calls if call.moves_data]
    allowed = traffic.one_by_one(build(model, seed))
    return (
        traffic.broken_rules(calls, where)
        or traffic.too_much(calls, allowed, where)
        or wrong_gradients(outcome.value["gradients"], step, at, where)
        or different(contents(build(model, seed))[0], outcome.value["parameters"], WEIGHTS_MOVED, where)
        or traffic.too_many(calls, allowed, where)
    )


# --- the wrappers
# ---------------------------------------------------------------------------------


def distributed_data_parallel(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `DistributedDataParallel`: training equals one process, with overlap and within its budget.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    cases = _wrapping(world_sizes, seed, dict.fromkeys(KIND_OF_MODEL, (None,)), held=0)
    judge("DistributedDataParallel", code, cases, seed, BANNED)


def bucketed_distributed_data_parallel(
    code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `BucketedDistributedDataParallel`: as for the plain one, and one all-reduce for each bucket.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge(
        "BucketedDistributedDataParallel",
        code,
        _wrapping(world_sizes, seed, BUCKET_BYTES, DEEP_BYTES),
        seed,
        BANNED,
    )


def _wrapping(
    world_sizes: Sequence[int], seed: int, bucket_bytes: dict[str, Sequence[int | None]], held: int
) -> Iterator[Trial]:
    """Training with every kind of parameter and buckets of these sizes (None: no buckets), pauses, memory."""
    for setting in settings(world_sizes, seed):
        for model in _models(setting):
            for size in bucket_bytes[model]:
                yield _training_trial(setting, model, size)
        yield _pause_trial(setting, _options(bucket_bytes["buffers"][0]))
    yield _memory_trial(Setting(2, None, Draws(seed)), held)


def _models(setting: Setting) -> list[str]:
    """All at few ranks, half of the special ones at many; and what a group may get wrong."""
    if setting.members:
        return ["buffers", "unused"]
    turn = setting.world_size % 2
    return [
        model
        for number, model in enumerate(KIND_OF_MODEL)
        if setting.world_size <= 3 or model in ("plain", "unused") or number % 2 == turn
    ]


def _options(bucket_bytes: int | None) -> dict:
    return {} if bucket_bytes in (None, DEFAULT_BUCKET) else {"bucket_size_mb": bucket_bytes / 2**20}


@dataclass(frozen=True)
class _Run:
    """A model that is trained, by the seed of rank 0, and what must come of it."""

    model: str
    seed: int
    expected: Sequence[Expected]
    bucket_bytes: int | None

    def wrapped(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Names as those of torch's own wrapper, and everything as on rank 0."""
        return wrong_start(build(self.model, self.seed), outcome, where)

    def trained(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Each step's gradients, and what was communicated for them."""
        parts = stretches(outcome, "began", len(self.expected))
        steps = zip(self.expected, outcome.value["steps"], parts, strict=True)
        problems = (
            self._step(want, step, part, at, f"{where}, step {number}")
            for number, (want, step, part) in enumerate(steps, 1)
        )
        return first(problems)

    def _step(self, want: Expected, step: dict, part: Stretch, at: int, where: str) -> Problem | None:
        module, ordered = build(self.model, self.seed), self.model == "plain"
        calls, size = [call for call in part.calls if call.moves_data], self.bucket_bytes
        allowed = traffic.one_by_one(module) if size is None else traffic.in_buckets(module, size)
        problem = (
            traffic.broken_rules(calls, where)
            or traffic.too_much(calls, allowed, where)
            or wrong_gradients(step["gradients"], want, at, where)
        )
        if problem or (len(want.local) == 1 and not calls):  # alone, nobody has to communicate
            return problem
        if size is None:
            problem = traffic.wrong_number(calls, allowed, where)
        else:
            problem = traffic.wrong_buckets(calls, allowed, size, ordered, where)
        return problem or (traffic.late(calls, allowed, part, where) if ordered else None)


def _training_trial(setting: Setting, model: str, bucket_bytes: int | None) -> Training:
    steps = STEPS if model == "plain" else 2
    batches, model_seed = draw_batches(setting, steps), setting.model_seed(setting.ranks[0])
    options = _options(bucket_bytes)
    size = f", buckets of {bucket_bytes} bytes" if options else ""
    run = _Run(model, model_seed, expectations(model, model_seed, batches), bucket_bytes)
    return setting.trial(
        KIND_OF_MODEL[model] + size,
        drivers.train,
        lambda p, rank: (model, setting.model_seed(rank), batches[p], options),
        run.wrapped,
        run.trained,
        model=model,
        received=lambda p: bytes_from_others(run.expected, p) + (model_bytes(model) if p else 0),
        kind=Training,
    )


def _pause_trial(setting: Setting, options: dict) -> Training:
    batches, model_seed = draw_batches(setting, STEPS), setting.model_seed(setting.ranks[0])
    expected = expectations("plain", model_seed, batches, learning_rate=0.0)
    return setting.trial(
        f"no_sync for {STEPS - 1} of {STEPS} backwards",
        drivers.pause,
        lambda p, rank: ("plain", setting.model_seed(rank), batches[p], options),
        partial(_paused, expected),
        received=partial(bytes_from_others, expected[:2]),  # two of the steps are averaged
        kind=Training,
    )


def _paused(expected: Sequence[Expected], at: int, where: str, outcome: Outcome) -> Problem | None:
    value = outcome.value
    (paused,) = stretches(outcome, "paused", 1)
    sent = paused.until("resumed")
    if sent:
        return Problem(SENT_IN_NO_SYNC, f"{where}: nothing is sent in no_sync()", traffic.named(sent[0]))
    *earlier, last = expected
    inside = Expected.total(earlier)
    if problem := wrong_gradients(value["inside"], Expected(inside.local[at], inside.local), at, where):
        return Problem(LOST_IN_NO_SYNC, f"{problem.expected} in no_sync()", problem.got)
    if problem := wrong_gradients(value["after"], Expected.total(expected), at, f"{where}, after no_sync"):
        partly = sum_of([inside.local[at], last.mean])
        if wrong_gradients(value["after"], Expected(partly, inside.local), at, where) is None:
            return Problem(PARTLY_AVERAGED, problem.expected, problem.got)
        return problem
    after = f"{where}, after an exception in no_sync"
    if problem := wrong_gradients(value["recovered"], expected[0], at, after):
        return Problem(NO_SYNC_STAYS_ON, problem.expected, problem.got)
    if not value["refused"]:
        asked = f"{where}: a RuntimeError when backward runs twice before finish_gradient_synchronization()"
        return Problem(READY_TWICE, asked, "no error")
    return None


def _memory_trial(setting: Setting, held: int) -> Training:
    batch = torch.zeros(4, 512)
    options = {"bucket_size_mb": 2.0} if held else {}
    return setting.trial(
        f"memory, gradients of {DEEP_BYTES:,} bytes",
        drivers.hold,
        lambda _, rank: (setting.model_seed(rank), batch, options),
        partial(_held, held),
        model="deep",
        kind=Training,
    )


def _held(limit: int, at: int, where: str, outcome: Outcome) -> Problem | None:
    earlier, held = outcome.value
    if held - earlier >= DEEP_BYTES:
        expected = f"{where}: {earlier:,} bytes held, also after {drivers.REPEATS} more steps"
        return Problem(MEMORY_GROWS, expected, f"{held:,} bytes")
    if held > limit + SLACK_BYTES:
        what = "one copy of the gradients" if limit else "nothing"
        expected = f"{where}: {what} held between steps, {limit:,} bytes"
        return Problem(MEMORY, expected, f"{held:,} bytes")
    return None
