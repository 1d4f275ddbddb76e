"""Checks of exercise 05's first half: the cost of a parameter, and an optimizer whose state is sharded.

The serial run is computed here, and so are the results of the usual mistakes, to say which one was made.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from autograder.inside.drivers import benchmarking as calling
from autograder.inside.drivers import sharded_data_parallelism as drivers
from autograder.inside.drivers.sharded_data_parallelism import Gradients, Optimized, OptimizerPlan, Tensors
from autograder.inside.reports import Unreadable, as_many
from autograder.kit.case import Trial, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import NOT_A_NUMBER, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import close, difference, is_number, kind_of
from autograder.topics.data_parallelism.training import TrainingTrial
from autograder.topics.sharded_data_parallelism import held_memory, mistakes, shard_traffic
from autograder.topics.sharded_data_parallelism.banned import BANNED
from autograder.topics.sharded_data_parallelism.trials import Sharding, memory_settings
from fourranks.trace import Call

# --- training_bytes


@check(banned=BANNED)
def training_bytes(function: Code, world_sizes: Sequence[int] = (1, 2, 4, 7, 64), seed: int = 0) -> Cases:
    """Check `training_bytes` for every stage, and that others are refused."""
    generator = random.Random(seed)
    for world_size in world_sizes:
        for stage in range(4):
            yield _bytes_trial(generator.randrange(1, 10**10) | 1, world_size, stage)
    for arguments in ((1000, 4, 4), (1000, 4, -1)):
        yield on_one_rank(f"training_bytes{arguments!r}", arguments, _refused, calling.error)


def _refused(outcome: Outcome) -> Problem | None:
    raised: str = outcome.value
    if raised == "ValueError":
        return None
    return Problem(mistakes.UNKNOWN_STAGE, "a ValueError", raised or "no exception")


def _costs(
    num_params: int, n: int, stage: int, weight: float = 2, gradient: float = 2, state: float = 12
) -> float:
    """Count the bytes of a rank, when a parameter has so many of each kind."""
    parts = (weight, gradient, state)
    return num_params * sum(part / n if stage >= 3 - at else part for at, part in enumerate(parts))


def _bytes_trial(num_params: int, n: int, stage: int) -> Trial:
    costs = partial(_costs, num_params, n)
    answer = costs(stage)
    known: dict[Mistake, float | list[float]] = {
        mistakes.EVERYTHING_SHARDED: costs(3),
        mistakes.NOTHING_SHARDED: costs(0),
        mistakes.NO_MASTER_WEIGHTS: [costs(stage, 2, 2, 8), costs(stage, 2, 2, 4)],
        mistakes.GRADIENTS_IN_FLOAT32: costs(stage, 2, 4, 12),
        mistakes.STAGE_OFF_BY_ONE: [costs(stage - 1), costs(stage + 1)],
        mistakes.FLOAT32_TRAINING: costs(stage, 4, 4, 8),
        mistakes.BYTES_OF_ALL_RANKS: n * answer,
        mistakes.NOT_IN_BYTES: [answer / unit for unit in (1e9, 2**30, 1e6, 2**20)],
        mistakes.ROUNDED_BYTES: [math.floor(answer), num_params // n * 16],
    }

    def verify(outcome: Outcome) -> Problem | None:
        got = outcome.value
        if not is_number(got):
            return Problem(NOT_A_NUMBER, "a float", kind_of(got))
        if math.isclose(got, answer, rel_tol=1e-12):
            return None
        return Problem(_bytes_mistake(got, answer, known), f"{answer:,.2f}", f"{got:,.2f}")

    title = f"training_bytes({num_params:,}, {n}, {stage})"
    size = n * max(0, 3 - stage) * (stage > 0)  # in stage 1 all mistakes differ
    return on_one_rank(title, (num_params, n, stage), verify, size=size)


def _bytes_mistake(got: float, answer: float, known: Mapping[Mistake, float | list[float]]) -> Mistake:
    for mistake, wrong in known.items():
        for value in wrong if isinstance(wrong, list) else [wrong]:
            if math.isclose(got, value, rel_tol=1e-6) and not math.isclose(value, answer, rel_tol=1e-12):
                return mistake
    return mistakes.ROUNDED_BYTES if math.isclose(got, answer, rel_tol=1e-6) else mistakes.WRONG_BYTES


# --- ShardedOptimizer


SHAPES = ((5, 3), (3,), (7, 2), (), (0,), (11,))
DTYPES = (*[torch.float32] * 5, torch.float64)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
UNEVEN = (4096, 64) * 4  # weights, biases: dealt out in turn, half the ranks get all the weights
STEPS = 3
_ALL = list(range(len(SHAPES)))
_PLAN: OptimizerPlan = {
    "kind": "AdamW",
    "groups": [(_ALL, {})],
    "late": False,
    "plain": True,
    "frozen": [],
    "factor": 1,
    "unscheduled": 0,
    "closure": False,
    "owned": False,
}
_TWO_GROUPS: list[tuple[list[int], dict[str, float]]] = [
    ([0, 2, 4], {}),
    ([1, 3, 5], {"weight_decay": 0.0, "lr": 0.3}),
]
ONE = "a single parameter, an optimizer of one's own"
PLANS: dict[str, OptimizerPlan] = {
    "AdamW": _PLAN,
    "SGD with a closure": _PLAN | {"kind": "SGD", "closure": True},
    "two groups": _PLAN | {"kind": "SGD", "groups": _TWO_GROUPS, "plain": False},
    "a learning rate that halves": _PLAN | {"factor": 0.5},
    "a group that comes later": _PLAN | {"groups": _TWO_GROUPS, "plain": False, "late": True},
    "frozen parameters": _PLAN | {"frozen": [1, 2]},
    ONE: _PLAN | {"kind": "clipped", "groups": [([0], {})], "frozen": _ALL[1:]},
}
_OWNED = PLANS["a group that comes later"] | {"owned": True, "frozen": [2]}  # which changes later owners
_NO_GRADIENT = 3  # the parameter that has none in the second step
# The usual mistakes in a plan.
_PLAN_MISTAKES: dict[Mistake, Callable[[OptimizerPlan], OptimizerPlan]] = {
    mistakes.LEARNING_RATE_UNCHANGED: lambda plan: plan | {"factor": 1},
    mistakes.LEARNING_RATE_LATE: lambda plan: plan | {"unscheduled": 1},
    mistakes.GROUP_OPTIONS_LOST: lambda plan: (
        plan | {"groups": [(places, {}) for places, _ in plan["groups"]]}
    ),
    mistakes.GROUP_NOT_ADDED: lambda plan: plan | {"groups": plan["groups"][:1], "late": False},
}


@check("ShardedOptimizer", banned=BANNED)
def sharded_optimizer(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `ShardedOptimizer`: weights equal to one process, its state's size, and what a step sends."""
    for setting in settings(world_sizes, seed):
        if setting.members:
            continue
        for number, (title, plan) in enumerate(PLANS.items()):
            if setting.tries(number) or title == ONE:
                yield _plan_trial(setting, title, plan)
        if setting.world_size > 1:
            yield _state_trial(setting)
            yield _plan_trial(setting, "gradients on their owners", _OWNED, size=0)
    for setting in memory_settings(world_sizes, seed):
        yield held_memory.optimizer(setting)


def _plan_trial(setting: Setting, title: str, plan: OptimizerPlan, size: int = 1) -> TrainingTrial:
    def draw() -> Tensors:
        return [setting.draws.randn(*kind) for kind in zip(SHAPES, DTYPES, strict=True)]

    weights = draw()
    gradients: Gradients = [
        [None if at in plan["frozen"] else gradient for at, gradient in enumerate(draw())]
        for _ in range(STEPS)
    ]
    gradients[1][_NO_GRADIENT] = None
    added = [at for places, _ in plan["groups"] for at in places]  # in which order owners are assigned
    numels = [weights[at].numel() * (at not in plan["frozen"]) for at in added]
    owners = shard_traffic.owners(numels, setting.world_size)
    owner_of = dict(zip(added, owners, strict=True))

    def own(rank: int) -> Gradients:
        has = [not plan["owned"] or owner_of[at] == rank for at in _ALL]
        return [[g if here else None for g, here in zip(step, has, strict=True)] for step in gradients]

    return setting.trial(
        title,
        drivers.optimize,
        lambda _, rank: (plan, weights, own(rank)),
        partial(_wrong_optimizer, plan, weights, gradients),
        kind=Sharding,
        size=size,
        received=lambda _: sum(_not_owned(step, setting.world_size) for step in gradients[1:]),
    )


def _not_owned(gradients: Sequence[torch.Tensor | None], world_size: int) -> int:
    """Count the bytes of parameters with a gradient, without an equal share of them and the largest one."""
    sizes = [4 * gradient.numel() for gradient in gradients if gradient is not None]  # or more
    return max(0, sum(sizes) - sum(sizes) // world_size - max(sizes))


def _serial(plan: OptimizerPlan, weights: Tensors, gradients: Gradients) -> list[Tensors]:
    optimizer_cls, options = drivers.OPTIMIZERS[plan["kind"]]
    copies = [[None if g is None else g.clone() for g in step] for step in gradients]
    return drivers.follow(lambda params: optimizer_cls(params, **options), plan, weights, copies).weights


def _wrong_optimizer(
    plan: OptimizerPlan, weights: Tensors, gradients: Gradients, at: int, where: str, outcome: Outcome
) -> Problem | None:
    report: Optimized = outcome.value
    steps = [
        (f"{where}, step {number}", [call for call in step.calls if call.moves_data])
        for number, step in enumerate(stretches(outcome, "began", STEPS), 1)
    ]
    limit = sum(weight.nbytes for number, weight in enumerate(weights) if number not in plan["frozen"])
    return (
        first(_forbidden(calls, step) for step, calls in steps)
        or _without_gradients(report, where)
        or _without_learning_rate(report, where)
        or _wrong_weights(plan, weights, gradients, report, at, where)
        or _not_cleared(report, where)
        or _called_again(report, where)
        or _lost_loss(plan, report, where)
        or first(_heavy(calls, limit, step) for step, calls in steps)
    )


def _forbidden(calls: Sequence[Call], where: str) -> Problem | None:
    problem = shard_traffic.broken_rules(calls, shard_traffic.COPIES, where)
    if problem and problem.mistake is mistakes.ALL_REDUCED:
        return replace(problem, mistake=mistakes.AVERAGED_AGAIN)
    return problem


def _not_cleared(report: Optimized, where: str) -> Problem | None:
    if all(report.cleared):
        return None
    return Problem(mistakes.NOT_CLEARED, f"{where}: zero_grad() clears all gradients", "some are left")


def _without_learning_rate(report: Optimized, where: str) -> Problem | None:
    if all(report.rated):
        return None
    return Problem(mistakes.LEARNING_RATE_MISSING, f"{where}: an lr in each of param_groups", "none in one")


def _without_gradients(report: Optimized, where: str) -> Problem | None:
    if all(report.enabled):
        return None
    expected = f"{where}: closure() where gradients are enabled"
    return Problem(mistakes.CLOSURE_WITHOUT_GRADIENTS, expected, "disabled")


def _called_again(report: Optimized, where: str) -> Problem | None:
    if (count := len(report.enabled)) <= STEPS:
        return None
    expected = f"{where}: closure() is called once in each of {STEPS} steps"
    return Problem(mistakes.CLOSURE_CALLED_AGAIN, expected, f"{count} times in all")


def _lost_loss(plan: OptimizerPlan, report: Optimized, where: str) -> Problem | None:
    losses = as_many(report.losses, STEPS)
    if losses == [float(number) if plan["closure"] else None for number in range(STEPS)]:
        return None
    returned = "the loss from step(closure)" if plan["closure"] else "None from step()"
    return Problem(mistakes.LOSS_NOT_RETURNED, f"{where}: {returned}", repr(losses[-1]))


def _heavy(calls: Sequence[Call], limit: int, where: str) -> Problem | None:
    gathered = any(call.op in shard_traffic.GATHERS for call in calls)
    padding = len(SHAPES) * shard_traffic.world_size(calls) * 8 * gathered
    return shard_traffic.too_much(
        calls, shard_traffic.COPIES, limit + padding, mistakes.PARAMETERS_SENT_TWICE, "all", where
    )


def _wrong_weights(
    plan: OptimizerPlan, weights: Tensors, gradients: Gradients, report: Optimized, position: int, where: str
) -> Problem | None:
    before, reported = weights, as_many(report.weights, STEPS)
    for number, wanted in enumerate(_serial(plan, weights, gradients)):
        found = as_many(reported[number], len(wanted))
        for at, (want, got) in enumerate(zip(wanted, found, strict=True)):
            if close(got, want, TOLERANCE[want.dtype]):
                continue
            if kind_of(got) != kind_of(want):
                raise Unreadable("a weight of another shape or dtype")
            expected, shown = difference(want, got)
            stayed = " (as before the step)" if torch.equal(got, before[at]) else ""
            mistake = _plan_mistake(plan, weights, gradients, reported)
            if stayed and mistake is mistakes.WRONG_UPDATE:
                mistake = _standstill(plan, position, before, found)
            place = f"{where}, step {number + 1}, parameter {at + 1}"
            return Problem(mistake, place + expected, shown + stayed)
        before = found
    return None


def _standstill(plan: OptimizerPlan, position: int, before: Tensors, found: Tensors) -> Mistake:
    """Tell why a parameter stays as it was; the first rank owns at least the first one."""
    everything = all(map(torch.equal, before, found))
    if plan["closure"] and everything:
        return mistakes.CLOSURE_CALLED_LATE
    if plan["owned"]:
        return mistakes.ANOTHER_OWNER
    return mistakes.NOTHING_UPDATED if position == 0 and everything else mistakes.NOT_SENT_BY_ITS_OWNER


def _plan_mistake(
    plan: OptimizerPlan, weights: Tensors, gradients: Gradients, found: list[Tensors]
) -> Mistake:
    for mistake, change in _PLAN_MISTAKES.items() if not plan["owned"] else ():  # other plans show these
        made = _serial(change(plan), weights, gradients)
        pairs = zip(itertools.chain(*found), itertools.chain(*made), strict=False)
        if all(close(got, wrong, TOLERANCE[wrong.dtype]) for got, wrong in pairs):
            return mistake
    return mistakes.WRONG_UPDATE


def _state_trial(setting: Setting) -> TrainingTrial:
    whole = 2 * 4 * sum(UNEVEN)
    limit = whole // setting.world_size + 2 * 4 * max(UNEVEN) + 1024  # and step counts

    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        if outcome.value <= limit:
            return None
        expected = f"{where}: at most {limit:,} bytes of state, 1/{setting.world_size} and one parameter's"
        return Problem(mistakes.STATE_NOT_SHARDED, expected, f"{outcome.value:,} of {whole:,} bytes")

    title = f"memory, AdamW's state of {whole:,} bytes"
    arguments = (list(UNEVEN),)
    size = 0  # any other failure tells more
    return setting.trial(
        title, drivers.optimizer_state, lambda *_: arguments, verify, kind=Sharding, size=size
    )
