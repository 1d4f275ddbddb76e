"""Checks of exercise 05's first half: what a parameter costs, and an optimizer whose state is sharded.

The serial run is computed here; what comes of the usual mistakes is computed too, to say which one was made.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from autograder.inside.drivers import benchmarking as calling
from autograder.inside.drivers import sharded_data_parallelism as drivers
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import WRONG_TYPE, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import stretches
from autograder.kit.student import Function, Outcome
from autograder.kit.values import close, difference, kind_of
from autograder.topics.data_parallelism.training import Training
from autograder.topics.sharded_data_parallelism import held_memory, shard_traffic
from autograder.topics.sharded_data_parallelism.banned import BANNED
from autograder.topics.sharded_data_parallelism.mistakes import (
    ALL_REDUCED,
    ANOTHER_OWNER,
    AVERAGED_AGAIN,
    BYTES_OF_ALL_RANKS,
    CLOSURE_CALLED_LATE,
    CLOSURE_WITHOUT_GRADIENTS,
    EVERYTHING_SHARDED,
    FLOAT32_TRAINING,
    GRADIENTS_IN_FLOAT32,
    GROUP_NOT_ADDED,
    GROUP_OPTIONS_LOST,
    LEARNING_RATE_UNCHANGED,
    LOSS_NOT_RETURNED,
    NO_MASTER_WEIGHTS,
    NOT_CLEARED,
    NOT_IN_BYTES,
    NOT_SENT_BY_ITS_OWNER,
    NOTHING_SHARDED,
    PARAMETERS_SENT_TWICE,
    ROUNDED_BYTES,
    STAGE_OFF_BY_ONE,
    STATE_NOT_SHARDED,
    UNKNOWN_STAGE,
    WRONG_BYTES,
    WRONG_UPDATE,
)
from autograder.topics.sharded_data_parallelism.trials import Sharding
from fourranks.trace import Call

Code = Callable | Function
Outcomes = Sequence[Outcome | None]


# --- training_bytes


def training_bytes(function: Code, world_sizes: Sequence[int] = (1, 2, 4, 7, 64), seed: int = 0) -> None:
    """Checks `training_bytes` for every stage, and that others are refused.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    generator = random.Random(seed)
    cases = [
        _bytes_trial(generator.randrange(1, 10**10) | 1, n, stage) for n in world_sizes for stage in range(4)
    ]
    judge(
        "training_bytes",
        function,
        [*cases, _refused_trial((1000, 4, 4)), _refused_trial((1000, 4, -1))],
        seed,
        BANNED,
    )


def _costs(
    num_params: int, n: int, stage: int, weight: float = 2, gradient: float = 2, state: float = 12
) -> float:
    """Bytes a rank, when a parameter has so many of each kind."""
    parts = (weight, gradient, state)
    return num_params * sum(part / n if stage >= 3 - at else part for at, part in enumerate(parts))


def _bytes_trial(num_params: int, n: int, stage: int) -> Trial:
    costs = partial(_costs, num_params, n)
    answer = costs(stage)
    mistakes: dict[Mistake, float | list[float]] = {
        EVERYTHING_SHARDED: costs(3),
        NOTHING_SHARDED: costs(0),
        FLOAT32_TRAINING: costs(stage, 4, 4, 8),
        NO_MASTER_WEIGHTS: [costs(stage, 2, 2, 8), costs(stage, 2, 2, 4)],
        GRADIENTS_IN_FLOAT32: costs(stage, 2, 4, 12),
        STAGE_OFF_BY_ONE: [costs(stage - 1), costs(stage + 1)],
        BYTES_OF_ALL_RANKS: n * answer,
        NOT_IN_BYTES: [answer / unit for unit in (1e9, 2**30, 1e6, 2**20)],
        ROUNDED_BYTES: [math.floor(answer), num_params // n * 16],
    }

    def verify(outcomes: Outcomes) -> Problem | None:
        got = outcomes[0].value
        if type(got) not in (int, float):
            return Problem(WRONG_TYPE, "a float", kind_of(got))
        if math.isclose(got, answer, rel_tol=1e-12):
            return None
        return Problem(_bytes_mistake(got, answer, mistakes), f"{answer:,.2f}", f"{got:,.2f}")

    return Trial(
        title=f"training_bytes({num_params:,}, {n}, {stage})",
        inputs=[(num_params, n, stage)],
        driver=calling.call,
        verify=verify,
        backends=("gloo",),
        size=n * max(0, 3 - stage) * (stage > 0),  # in stage 1 all mistakes differ
    )


def _bytes_mistake(got: float, answer: float, mistakes: Mapping[Mistake, float | list[float]]) -> Mistake:
    for mistake, wrong in mistakes.items():
        for value in wrong if isinstance(wrong, list) else [wrong]:
            if math.isclose(got, value, rel_tol=1e-6) and not math.isclose(value, answer, rel_tol=1e-12):
                return mistake
    return ROUNDED_BYTES if math.isclose(got, answer, rel_tol=1e-6) else WRONG_BYTES


def _refused_trial(arguments: tuple[int, int, int]) -> Trial:
    def verify(outcomes: Outcomes) -> Problem | None:
        raised = outcomes[0].value
        return (
            None if raised == "ValueError" else Problem(UNKNOWN_STAGE, "a ValueError", raised or "a number")
        )

    title = f"training_bytes{arguments!r}"
    return Trial(title=title, inputs=[arguments], driver=calling.error, verify=verify, backends=("gloo",))


# --- ShardedOptimizer


SHAPES = ((5, 3), (3,), (7, 2), (1,), (0,), (11,))
UNEVEN = (4096, 64) * 4  # weights, biases: who deals them out in turn gives all the weights to half the ranks
STEPS = 3
_PLAN = {
    "kind": "AdamW",
    "frozen": [],
    "factor": 1,
    "late": False,
    "plain": True,
    "closure": False,
    "owned": False,  # whether a gradient is on its owner only
}
_ALL = list(range(len(SHAPES)))
_TWO_GROUPS = [[[0, 2, 4], {}], [[1, 3, 5], {"weight_decay": 0.0, "lr": 0.3}]]
ONE = "a single parameter, an optimizer of one's own"
PLANS: dict[str, dict] = {
    "AdamW": _PLAN | {"groups": [[_ALL, {}]]},
    "SGD with a closure": _PLAN | {"kind": "SGD", "groups": [[_ALL, {}]], "closure": True},
    "two groups": _PLAN | {"kind": "SGD", "groups": _TWO_GROUPS, "plain": False},
    "a learning rate that halves": _PLAN | {"groups": [[_ALL, {}]], "factor": 0.5},
    "a group that comes later": _PLAN | {"groups": _TWO_GROUPS, "plain": False, "late": True},
    "frozen parameters": _PLAN | {"groups": [[_ALL, {}]], "frozen": [1, 2]},
    ONE: _PLAN | {"kind": "clipped", "groups": [[[0], {}]], "frozen": _ALL[1:]},
}
_OWNED = _PLAN | {"groups": [[_ALL, {}]], "owned": True}
_NO_GRADIENT = 3  # the parameter that has none in the second step
# What the usual mistakes make of a plan.
_PLAN_MISTAKES: dict[Mistake, Callable[[dict], dict]] = {
    LEARNING_RATE_UNCHANGED: lambda plan: plan | {"factor": 1},
    GROUP_OPTIONS_LOST: lambda plan: plan | {"groups": [[places, {}] for places, _ in plan["groups"]]},
    GROUP_NOT_ADDED: lambda plan: plan | {"groups": plan["groups"][:1], "late": False},
}


def sharded_optimizer(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `ShardedOptimizer`: weights equal to one process, its state's size, and what a step sends.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("ShardedOptimizer", code, _optimizing(world_sizes, seed), seed, BANNED)


def _optimizing(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        if setting.members:
            continue
        for number, (title, plan) in enumerate(PLANS.items()):
            if setting.world_size <= 3 or number % 2 == setting.world_size % 2 or title == ONE:
                yield _plan_trial(setting, title, plan)
        if setting.world_size > 1:
            yield _state_trial(setting)
            yield replace(_plan_trial(setting, "gradients on their owners", _OWNED), size=0)
    yield held_memory.optimizer(seed)


def _plan_trial(setting: Setting, title: str, plan: dict) -> Training:
    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return setting.draws.randn(shape)

    weights = [draw(shape) for shape in SHAPES]
    gradients: list[list[torch.Tensor | None]] = [
        [None if at in plan["frozen"] else draw(shape) for at, shape in enumerate(SHAPES)]
        for _ in range(STEPS)
    ]
    gradients[1][_NO_GRADIENT] = None
    owners = shard_traffic.owners([weight.numel() for weight in weights], setting.world_size)

    def own(rank: int) -> list[list[torch.Tensor | None]]:
        has = [not plan["owned"] or owner == rank for owner in owners]
        return [[g if here else None for g, here in zip(step, has, strict=True)] for step in gradients]

    return setting.trial(
        title,
        drivers.optimize,
        lambda _, rank: (plan, weights, own(rank)),
        partial(_wrong_optimizer, plan, weights, gradients),
        kind=Sharding,
        received=lambda _: sum(_not_owned(step, setting.world_size) for step in gradients[1:]),
    )


def _not_owned(gradients: Sequence[torch.Tensor | None], world_size: int) -> int:
    """Bytes of the parameters with a gradient, without an equal share of them and the largest one."""
    sizes = [gradient.nbytes for gradient in gradients if gradient is not None]
    return max(0, sum(sizes) - sum(sizes) // world_size - max(sizes))


def _serial(plan: dict, weights: Sequence[torch.Tensor], gradients: Sequence) -> list[list[torch.Tensor]]:
    optimizer_cls, options = drivers.OPTIMIZERS[plan["kind"]]
    copies = [[None if g is None else g.clone() for g in step] for step in gradients]
    return drivers.follow(lambda params: optimizer_cls(params, **options), plan, list(weights), copies)[
        "weights"
    ]


def _wrong_optimizer(
    plan: dict, weights: Sequence[torch.Tensor], gradients: Sequence, at: int, where: str, outcome: Outcome
) -> Problem | None:
    report = outcome.value
    steps = [
        (f"{where}, step {number}", [call for call in step.calls if call.moves_data])
        for number, step in enumerate(stretches(outcome, "began", STEPS), 1)
    ]
    limit = sum(weight.nbytes for number, weight in enumerate(weights) if number not in plan["frozen"])
    wrong_weights = partial(_wrong_weights, weights, gradients)
    problems = itertools.chain(
        (_forbidden(calls, step) for step, calls in steps),
        (rule(plan, report, where) for rule in (_without_gradients, wrong_weights, _not_cleared, _lost_loss)),
        (_heavy(calls, limit, step) for step, calls in steps),
    )
    return first(problems)


def _forbidden(calls: Sequence[Call], where: str) -> Problem | None:
    problem = shard_traffic.broken_rules(calls, shard_traffic.COPIES, where)
    return replace(problem, mistake=AVERAGED_AGAIN) if problem and problem.mistake is ALL_REDUCED else problem


def _not_cleared(plan: dict, report: dict, where: str) -> Problem | None:
    if all(report["cleared"]):
        return None
    return Problem(NOT_CLEARED, f"{where}: zero_grad() clears all gradients", "some are left")


def _without_gradients(plan: dict, report: dict, where: str) -> Problem | None:
    if all(report["enabled"]):
        return None
    return Problem(CLOSURE_WITHOUT_GRADIENTS, f"{where}: closure() where gradients are enabled", "disabled")


def _lost_loss(plan: dict, report: dict, where: str) -> Problem | None:
    if report["losses"] == [float(number) if plan["closure"] else None for number in range(STEPS)]:
        return None
    returned = "the loss from step(closure)" if plan["closure"] else "None from step()"
    return Problem(LOSS_NOT_RETURNED, f"{where}: {returned}", repr(report["losses"][-1]))


def _heavy(calls: Sequence[Call], limit: int, where: str) -> Problem | None:
    gathered = any(call.op in shard_traffic.GATHERS for call in calls)
    padding = len(SHAPES) * shard_traffic.world_size(calls) * 4 * gathered
    return shard_traffic.too_much(
        calls, shard_traffic.COPIES, limit + padding, PARAMETERS_SENT_TWICE, "all", where
    )


def _wrong_weights(
    weights: Sequence[torch.Tensor], gradients: Sequence, plan: dict, report: dict, where: str
) -> Problem | None:
    before = list(weights)
    for number, wanted in enumerate(_serial(plan, weights, gradients)):
        found = report["weights"][number]
        for at, (want, got) in enumerate(zip(wanted, found, strict=True)):
            if close(got, want, 1e-6):
                continue
            expected, shown = difference(want, got)
            stayed = " (as before the step)" if torch.equal(got, before[at]) else ""
            mistake = _plan_mistake(plan, weights, gradients, report["weights"])
            if stayed and mistake is WRONG_UPDATE:
                mistake = _standstill(plan, before, found)
            return Problem(
                mistake, f"{where}, step {number + 1}, parameter {at + 1}{expected}", shown + stayed
            )
        before = found
    return None


def _standstill(plan: dict, before: Sequence, found: Sequence) -> Mistake:
    """Why a parameter stays as it was."""
    if plan["closure"] and all(map(torch.equal, before, found)):
        return CLOSURE_CALLED_LATE
    return ANOTHER_OWNER if plan["owned"] else NOT_SENT_BY_ITS_OWNER


def _plan_mistake(plan: dict, weights: Sequence, gradients: Sequence, found: Sequence) -> Mistake:
    for mistake, change in _PLAN_MISTAKES.items():
        made = _serial(change(plan), weights, gradients)
        if all(
            close(g, m, 1e-6)
            for step, other in zip(found, made, strict=True)
            for g, m in zip(step, other, strict=True)
        ):
            return mistake
    return WRONG_UPDATE


def _state_trial(setting: Setting) -> Training:
    whole = 2 * 4 * sum(UNEVEN)
    limit = whole // setting.world_size + 2 * 4 * max(UNEVEN) + 1024  # and step counts

    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        if outcome.value <= limit:
            return None
        expected = f"{where}: at most {limit:,} bytes of state, 1/{setting.world_size} and one parameter's"
        return Problem(STATE_NOT_SHARDED, expected, f"{outcome.value:,} of {whole:,} bytes")

    title = f"memory, AdamW's state of {whole:,} bytes"
    trial = setting.trial(title, drivers.optimizer_state, lambda *_: (list(UNEVEN),), verify, kind=Sharding)
    return replace(trial, size=0)  # what else goes wrong tells more
