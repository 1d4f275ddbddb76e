"""Checks of exercise 04: training on many ranks must equal training in one process, at a price that is known.

The serial run is computed here; the ranks' models start from other random numbers than it does, but for
rank 0. What each step may communicate is in `autograder.gradient_traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from autograder import gradient_traffic as traffic
from autograder.drivers import data_parallelism as drivers
from autograder.drivers.small_models import build, contents
from autograder.gradient_traffic import Moments
from autograder.gradients import Expected, expectations, sum_of, wrong_gradients
from autograder.judge import Trial, judge
from autograder.policy import Problem
from autograder.student import Function, Outcome
from autograder.training import WORLD_SIZES, Setting, Training, settings
from autograder.values import difference, kind_of, same
from fourranks.trace import Call

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
    judge("average_gradients", function, _averaging(world_sizes, seed), seed)


def _averaging(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        for model in KIND_OF_MODEL if not setting.members else ("plain", "unused"):
            batches, model_seed = setting.draw(1), setting.model_seed(0)
            yield setting.trial(
                KIND_OF_MODEL[model],
                drivers.average,
                lambda p, _, batches=batches, model=model, s=model_seed: (model, s, batches[p][0]),
                partial(_averaged, expectations(model, model_seed, batches)[0], model, model_seed),
                model=model,
            )


def _averaged(step: Expected, model: str, seed: int, at: int, where: str, outcome: Outcome) -> Problem | None:
    calls = [call for call in outcome.calls if call.moves_data]
    allowed = traffic.one_by_one(build(model, seed))
    return (
        traffic.broken_rules(calls, where)
        or traffic.too_much(calls, allowed, where)
        or wrong_gradients(outcome.value["gradients"], step, at, where)
        or _different(contents(build(model, seed))[0], outcome.value["parameters"], "weights moved", where)
        or traffic.too_many(calls, allowed, where)
    )


def _different(
    expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor], kind: str, where: str
) -> Problem | None:
    for name, want in expected.items():
        if kind_of(got[name]) != kind_of(want):
            return Problem(kind, f"{where}, {name}: {kind_of(want)}", kind_of(got[name]))
        if not same(got[name], want):
            wanted, found = difference(want, got[name])
            return Problem(kind, f"{where}, {name}{wanted}", found)
    return None


# --- the wrappers
# ---------------------------------------------------------------------------------


def distributed_data_parallel(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `DistributedDataParallel`: training equals one process, with overlap and within its budget.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    cases = _wrapping(world_sizes, seed, bucket_bytes=(), held=0)
    judge("DistributedDataParallel", code, cases, seed)


def bucketed_distributed_data_parallel(
    code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `BucketedDistributedDataParallel`: as for the plain one, and one all-reduce for each bucket.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    cases = _wrapping(world_sizes, seed, bucket_bytes=(25 << 20, 150, 0), held=DEEP_BYTES)
    judge("BucketedDistributedDataParallel", code, cases, seed)


def _wrapping(
    world_sizes: Sequence[int], seed: int, bucket_bytes: Sequence[int], held: int
) -> Iterator[Trial]:
    """Training with every kind of parameter, pauses, and memory; with buckets of several sizes."""
    first, *others = bucket_bytes or [None]
    for setting in settings(world_sizes, seed):
        for model in KIND_OF_MODEL if not setting.members else ("buffers", "unused"):
            yield _training_trial(setting, model, others[0] if others and model != "plain" else first)
        for size in others:
            yield _training_trial(setting, "plain", size)
        yield _pause_trial(setting, _options(others[0] if others else None))
    yield _memory_trial(Setting(2, None, seed, torch.Generator().manual_seed(seed)), held)


def _options(bucket_bytes: int | None) -> dict:
    return {} if bucket_bytes in (None, 25 << 20) else {"bucket_size_mb": bucket_bytes / 2**20}


def _training_trial(setting: Setting, model: str, bucket_bytes: int | None) -> Training:
    batches, model_seed = setting.draw(STEPS), setting.model_seed(setting.ranks[0])
    options = _options(bucket_bytes)
    size = f", buckets of {bucket_bytes} bytes" if options else ""
    return setting.trial(
        KIND_OF_MODEL[model] + size,
        drivers.train,
        lambda p, rank: (model, setting.model_seed(rank), batches[p], options),
        partial(_trained, model, model_seed, expectations(model, model_seed, batches), bucket_bytes),
        model=model,
    )


def _trained(
    model: str,
    seed: int,
    expected: Sequence[Expected],
    bucket_bytes: int | None,
    at: int,
    where: str,
    outcome: Outcome,
) -> Problem | None:
    value, module = outcome.value, build(model, seed)
    if problem := _wrapped(module, value, where):
        return problem
    allowed = traffic.one_by_one(module) if bucket_bytes is None else traffic.in_buckets(module, bucket_bytes)
    for number, (want, step) in enumerate(zip(expected, value["steps"], strict=True), 1):
        moments = Moments.of(step)
        calls = moments.within(outcome.calls)
        here = f"{where}, step {number}"
        problem = (
            traffic.broken_rules(calls, here)
            or traffic.too_much(calls, allowed, here)
            or wrong_gradients(step["gradients"], want, at, here)
            or _wrong_pieces(calls, allowed, bucket_bytes, model == "plain", here)
            or (traffic.late(calls, allowed, moments, here) if model == "plain" else None)
        )
        if problem:
            return problem
    return None


def _wrong_pieces(
    calls: Sequence[Call],
    allowed: Sequence[traffic.AllReduce],
    bucket_bytes: int | None,
    ordered: bool,
    where: str,
) -> Problem | None:
    if bucket_bytes is None:
        return traffic.wrong_number(calls, allowed, where)
    return traffic.wrong_buckets(calls, allowed, bucket_bytes, ordered, where)


def _wrapped(module: torch.nn.Module, value: dict, where: str) -> Problem | None:
    """Names as those of torch's own wrapper, and everything as on rank 0."""
    if not value["kept"]:
        return Problem("names", f"{where}: the module in .module", "something else")
    parameters, buffers = [
        {f"module.{name}": tensor for name, tensor in part.items()} for part in contents(module)
    ]
    for kind, want in (("parameters", parameters), ("buffers", buffers)):
        got = value[kind]
        if list(got) != list(want):
            extra = ", ".join(sorted(set(got) ^ set(want))) or "another order"
            return Problem(
                "names", f"{where}: {kind} named {', '.join(want) or '(none)'}", f"differing: {extra}"
            )
        if problem := _different(want, got, f"{kind} differ", where):
            return problem
    return None


def _pause_trial(setting: Setting, options: dict) -> Training:
    batches, model_seed = setting.draw(STEPS), setting.model_seed(setting.ranks[0])
    return setting.trial(
        f"no_sync for {STEPS - 1} of {STEPS} backwards",
        drivers.pause,
        lambda p, rank: ("plain", setting.model_seed(rank), batches[p], options),
        partial(_paused, expectations("plain", model_seed, batches, learning_rate=0.0)),
    )


def _paused(expected: Sequence[Expected], at: int, where: str, outcome: Outcome) -> Problem | None:
    value = outcome.value
    sent = [call for call in outcome.calls if value["paused"] <= call.start <= value["resumed"]]
    if sent:
        return Problem("sent in no_sync", f"{where}: nothing is sent in no_sync()", traffic.named(sent[0]))
    *earlier, last = expected
    inside = Expected.total(earlier)
    if problem := wrong_gradients(value["inside"], Expected(inside.local[at], inside.local), at, where):
        return Problem("lost in no_sync", f"{problem.expected} in no_sync()", problem.got)
    if problem := wrong_gradients(value["after"], Expected.total(expected), at, f"{where}, after no_sync"):
        partly = sum_of([inside.local[at], last.mean])
        if wrong_gradients(value["after"], Expected(partly, inside.local), at, where) is None:
            return Problem("partly averaged", problem.expected, problem.got)
        return problem
    after = f"{where}, after an exception in no_sync"
    if problem := wrong_gradients(value["recovered"], expected[0], at, after):
        return Problem("no_sync stays on", problem.expected, problem.got)
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
    )


def _held(limit: int, at: int, where: str, outcome: Outcome) -> Problem | None:
    gained, held = outcome.value["gained"], outcome.value["held"]
    if held > limit + SLACK_BYTES:
        what = "one copy of the gradients" if limit else "nothing"
        expected = f"{where}: {what} held between steps, {limit:,} bytes"
        return Problem("memory", expected, f"{held:,} bytes")
    if gained > 2 * DEEP_BYTES:
        expected = f"{where}: as much memory after {drivers.REPEATS} more steps"
        return Problem("memory grows", expected, f"{gained:,} bytes more")
    return None
