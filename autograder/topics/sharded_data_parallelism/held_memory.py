"""Trials of exercise 05 on ranks whose memory is measured from outside.

At the size of these cases a rank that shards takes tens of MiB less than one that does not, whatever
it reports of itself and wherever it keeps them. These cases run only in a sandbox, whose witness measures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from autograder.inside.drivers import held_memory as drivers
from autograder.inside.drivers.small_models import loss
from autograder.inside.reports import Unreadable
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import too_little
from autograder.kit.settings import Rule, Setting, taking_part
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import close, difference_beyond, kind_of
from autograder.topics.data_parallelism.mistakes import COPIED_TWICE, PARAMETERS_DIFFER, WRONG_GRADIENT
from autograder.topics.data_parallelism.training import TrainingTrial
from autograder.topics.sharded_data_parallelism import mistakes
from autograder.topics.sharded_data_parallelism.shard_traffic import (
    COPIES,
    GATHERS,
    REDUCES,
    broken_rules,
    too_much,
)
from autograder.topics.sharded_data_parallelism.trials import GRADIENTS_AT_ONCE, Sharding

SLACK = 16 << 20  # bytes that a rank may take besides what is asked of it: up to 7 MiB were seen
TOLERANCE = 1e-3  # of sums and norms of float32
_TOWER = drivers.NUM_LAYERS * drivers.LAYER_BYTES
_HALF = _TOWER // 2


def _measured(
    setting: Setting,
    what: str,
    driver: Callable[..., Any],
    arguments: Callable[[int, int], tuple[Any, ...]],
    *rules: Rule,
    received: Callable[[int], int],
) -> TrainingTrial:
    return setting.trial(
        f"memory as Linux counts it, {what}",
        driver,
        arguments,
        *rules,
        kind=Sharding,
        received=received,
        measures=True,
        backends=("gloo",),
        size=0,
    )


def _held(taken: int, limit: int, mistake: Mistake, where: str) -> Problem | None:
    """Find more memory than the limit."""
    if taken <= limit + SLACK:
        return None
    expected = f"{where}: at most {_mib(limit)}, and {_mib(SLACK)} for everything else"
    return Problem(mistake, expected, _mib(taken))


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.0f} MiB"


def _other(want: torch.Tensor, got: torch.Tensor, mistake: Mistake, where: str) -> Problem | None:
    """Find other values than are wanted."""
    if kind_of(got) != kind_of(want):
        return Problem(mistake, f"{where}: {kind_of(want)}", kind_of(got))
    if close(got, want, TOLERANCE):
        return None
    expected, found = difference_beyond(TOLERANCE, want, got)
    return Problem(mistake, where + expected, found)


# --- the optimizer


def optimizer(setting: Setting) -> TrainingTrial:
    """Make a trial of several ranks, and an optimizer whose state is many times its parameters."""
    gradients = setting.draws.seed("gradients")
    one = 4 * drivers.NUMEL
    whole = drivers.NUM_PARAMETERS * one
    share = whole // setting.world_size + one
    limit = (
        drivers.STEPS_KEPT * share + 6 * whole
    )  # parameters, gradients, messages under way, and copies of those

    @functools.cache
    def wanted() -> torch.Tensor:
        return drivers.follow(drivers.Remembering, gradients)

    def rule(at: int, where: str, outcome: Outcome) -> Problem | None:
        (run,) = stretches(outcome, "began", 1)
        calls = [call for call in outcome.calls if call.moves_data]
        return (
            _other(wanted(), outcome.value, mistakes.WRONG_UPDATE, where)
            or broken_rules(calls, COPIES, where)
            or too_much(calls, COPIES, drivers.STEPS * whole, mistakes.PARAMETERS_SENT_TWICE, "all", where)
            or _held(run.taken_since("began"), limit, mistakes.STATE_NOT_SHARDED, where)
        )

    return _measured(
        setting,
        f"an optimizer's state of {_mib(drivers.STEPS_KEPT * whole)}",
        drivers.optimizer_state,
        lambda *_: (gradients,),
        rule,
        received=lambda _: drivers.STEPS * (whole - share),
    )


# --- gradients and parameters


def gradients(setting: Setting) -> TrainingTrial:
    """Make a trial of two ranks that both hold all parameters, and half of the gradients."""
    others = GRADIENTS_AT_ONCE * drivers.LAYER_BYTES

    def rule(at: int, where: str, outcome: Outcome) -> Problem | None:
        (step,) = stretches(outcome, "began", 1)
        return (
            broken_rules(step.calls, REDUCES, where)
            or too_much(step.calls, REDUCES, _TOWER, mistakes.GRADIENTS_REDUCED_TWICE, "reduces", where)
            or _held(
                step.taken_since("began"), _TOWER + _HALF + others, mistakes.TOO_MANY_GRADIENTS_AT_ONCE, where
            )
        )

    return _one_step(setting, "gradients", rule, _HALF - drivers.LAYER_BYTES)


def parameters(setting: Setting) -> TrainingTrial:
    """Make a trial of two ranks that hold half of the parameters and gradients each, and gather half."""

    def rule(at: int, where: str, outcome: Outcome) -> Problem | None:
        (step,) = stretches(outcome, "began", 1)
        turn = step.at("turned")
        forward, backward = step.until("turned"), [call for call in step.calls if call.start >= turn]
        regathers = any(call.op in GATHERS for call in backward)
        return (
            broken_rules(step.calls, (*GATHERS, *REDUCES), where)
            or too_much(forward, GATHERS, _TOWER, mistakes.GATHERED_TWICE, "all-gathers in forward", where)
            or too_much(backward, GATHERS, _TOWER, mistakes.GATHERED_TWICE, "all-gathers in backward", where)
            or too_much(
                step.calls, REDUCES, _TOWER, mistakes.GRADIENTS_REDUCED_TWICE, "reduce-scatters", where
            )
            or too_little([_HALF], [forward])
            or _held(step.taken("began"), _HALF, mistakes.WHOLE_PARAMETERS_HELD, where)
            or _held(step.taken("turned"), 2 * _HALF, _kept(regathers, mistakes.NOT_FREED_IN_FORWARD), where)
            or _held(
                step.taken_since("began"), 3 * _HALF, _kept(regathers, mistakes.NOT_FREED_IN_BACKWARD), where
            )
        )

    return _one_step(setting, "parameters", rule, 2 * _HALF)


def _kept(regathers: bool, not_freed: Mistake) -> Mistake:
    return not_freed if regathers else mistakes.KEPT_FOR_BACKWARD


def _one_step(setting: Setting, what: str, rule: Rule, received: int) -> TrainingTrial:
    """Make a trial of a forward and a backward on two ranks, which begin with parameters of their own.

    Args:
        rule: that each rank keeps to, besides computing what one process computes.
        received: bytes that each rank needs, after all have the parameters of the first one.
    """
    batches = setting.draws.randn((2, 2, drivers.WIDTH))

    @functools.cache
    def wanted() -> drivers.OneStep:
        module = drivers.tower(setting.model_seed(0))
        losses = torch.stack([loss(module(batch)) for batch in batches])
        losses.mean().backward()
        return drivers.OneStep(losses.detach(), drivers.norms(module))

    def copied(at: int, where: str, outcome: Outcome) -> Problem | None:
        (step,) = stretches(outcome, "began", 1)
        before = [call for call in outcome.calls if call.start < step.at("began")]
        return too_much(before, ("broadcast", *GATHERS), _TOWER, COPIED_TWICE, "copies", where)

    trial = _measured(
        setting,
        f"{what} of {_mib(_TOWER)}",
        drivers.one_step,
        lambda position, rank: (setting.model_seed(rank), batches[position].clone()),
        copied,
        rule,
        received=lambda position: received + _TOWER * (position > 0),
    )
    verify = trial.verify
    return replace(
        trial, verify=lambda outcomes: _other_results(wanted(), taking_part(outcomes)) or verify(outcomes)
    )


def _other_results(wanted: drivers.OneStep, ranks: Sequence[tuple[str, Outcome]]) -> Problem | None:
    """Find another loss on some rank, or another norm of a gradient, by what all ranks have of it."""
    steps: list[drivers.OneStep] = [outcome.value for _, outcome in ranks]
    if any(step.norms.shape != wanted.norms.shape for step in steps):
        raise Unreadable("norms of another model")
    losses = torch.cat([step.loss.flatten() for step in steps])
    norms = torch.stack([step.norms for step in steps]).norm(dim=0)
    return _other(wanted.loss, losses, PARAMETERS_DIFFER, "losses") or _other(
        wanted.norms, norms, WRONG_GRADIENT, "norms of gradients"
    )
