"""Check of exercise 05's ZeRO-2: every gradient ends up on one rank, in time, and is gone everywhere else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from autograder.inside.drivers import data_parallelism as training
from autograder.inside.drivers import sharded_data_parallelism as drivers
from autograder.inside.drivers.small_models import Gradients, Stack, build, model_bytes
from autograder.inside.reports import as_many
from autograder.kit.check import Cases, Code, check
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings, settings_of, taking_part
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Outcome
from autograder.topics.data_parallelism import gradient_traffic
from autograder.topics.data_parallelism.gradients import (
    ExpectedGradients,
    bytes_from_others,
    expectations,
    wrong_gradients,
)
from autograder.topics.data_parallelism.training import KIND_OF_MODEL, TrainingTrial, draw_batches
from autograder.topics.data_parallelism.wrapping import wrong_start
from autograder.topics.sharded_data_parallelism import held_memory, mistakes, shard_traffic, trials
from autograder.topics.sharded_data_parallelism.banned import BANNED
from fourranks.naming import counted

Found = Sequence[tuple[str, Gradients]]  # of each rank, with its rank and step in words


@check("ShardedGradients", banned=BANNED)
def sharded_gradients(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `ShardedGradients`: each gradient on one rank, reduced in time and once, and gone elsewhere."""
    for setting in settings(world_sizes, seed):
        for number, model in enumerate(KIND_OF_MODEL):
            if model in ("plain", "unused") or (setting.tries(number) and not setting.members):
                yield _reduced_trial(setting, model)
    for setting in trials.memory_settings(world_sizes, seed):
        yield _gradient_memory_trial(setting)
    for setting in settings_of(2, world_sizes, seed):
        yield held_memory.gradients(setting)


def _reduced_trial(setting: Setting, model: str) -> TrainingTrial:
    steps = 3 if model == "unused" else 2  # the third finds zeros where a gradient was, and perhaps none is
    batches, model_seed = draw_batches(setting, steps), setting.model_seed(setting.ranks[0])
    expected = expectations(model, model_seed, batches, learning_rate=0.0)
    trial = setting.trial(
        KIND_OF_MODEL[model],
        training.train,
        lambda p, rank: (model, setting.model_seed(rank), batches[p], {}, 0.0),
        lambda at, where, outcome: wrong_start(build(model, model_seed), steps, outcome, where),
        model=model,
        kind=trials.Sharding,
        received=lambda p: _owned_bytes(expected, model, p) + (model_bytes(model) if p else 0),
    )
    reduced = partial(_wrong_reductions, expected, model)
    return replace(trial, verify=lambda outcomes: trial.verify(outcomes) or reduced(taking_part(outcomes)))


def _owned_bytes(expected: Sequence[ExpectedGradients], model: str, position: int) -> int:
    """Count the bytes of the gradients that a rank must own, and cannot know without the others."""
    module = build(model, 0)
    numels = [p.numel() * p.requires_grad for p in module.parameters()]
    owners = shard_traffic.owners(numels, len(expected[0].local))
    own = {
        name for (name, _), owner in zip(module.named_parameters(), owners, strict=True) if owner == position
    }
    steps = [ExpectedGradients({name: step.mean.get(name) for name in own}, step.local) for step in expected]
    return bytes_from_others(steps, position)


def _wrong_reductions(
    expected: Sequence[ExpectedGradients], model: str, outcomes: Sequence[tuple[str, Outcome]]
) -> Problem | None:
    """Find what is wrong with the steps, in what all ranks did before what each did too late."""
    module = build(model, 0)
    parts = [stretches(outcome, "began", len(expected)) for _, outcome in outcomes]
    for number, step in enumerate(expected):
        wheres = [f"{where}, step {number + 1}" for where, _ in outcomes]
        held = [
            (where, as_many(outcome.value.steps, len(expected))[number])
            for where, (_, outcome) in zip(wheres, outcomes, strict=True)
        ]
        each = [(where, own[number]) for where, own in zip(wheres, parts, strict=True)]
        problems = itertools.chain(
            (_heavy(part, module, where) for where, part in each),
            (rule(step, held) for rule in (_wrong_owners, _unfair, partial(_other_owners, module))),
            (_late(part, module, where) for where, part in each if model == "plain"),
        )
        if problem := first(problems):
            return problem
    return None


def _heavy(step: Stretch, module: torch.nn.Module, where: str) -> Problem | None:
    calls = [call for call in step.calls if call.moves_data]
    trained = [p for p in module.parameters() if p.requires_grad]
    scattered = any(call.op.startswith("reduce_scatter") for call in calls)
    padding = sum(p.element_size() for p in trained) * shard_traffic.world_size(calls) * scattered
    limit = sum(p.nbytes for p in trained) + padding
    return shard_traffic.broken_rules(calls, shard_traffic.REDUCES, where) or shard_traffic.too_much(
        calls, shard_traffic.REDUCES, limit, mistakes.GRADIENTS_REDUCED_TWICE, "reduces", where
    )


def _late(step: Stretch, module: torch.nn.Module, where: str) -> Problem | None:
    """Find a reduce that is late where each gradient has one; elsewhere memory tells."""
    allowed = gradient_traffic.one_by_one(module)
    calls = [call for call in step.calls if call.moves_data]
    if len(calls) != len(allowed):
        return None
    return gradient_traffic.late(calls, allowed, step, where)


def _wrong_owners(step: ExpectedGradients, found: Found) -> Problem | None:
    """Find a gradient that is not the mean on one rank and gone on all others."""
    for name, want in step.mean.items():
        if want is None or not want.numel():
            continue
        holders = [at for at, (_, gradients) in enumerate(found) if gradients.get(name) is not None]
        if not holders:
            return Problem(mistakes.NO_OWNER, f"{name}.grad on one rank", "None on all ranks")
        only = ExpectedGradients({name: want}, [{name: local[name]} for local in step.local])
        wrong = [wrong_gradients(found[at][1], only, at, found[at][0]) for at in holders]
        if all(wrong):
            return wrong[0]
        if len(holders) > 1:
            where = found[holders[next(at for at, problem in enumerate(wrong) if problem or at)]][0]
            return Problem(
                mistakes.GRADIENT_KEPT, f"{where}: {name}.grad on its owner only", f"on {len(holders)} ranks"
            )
    return None


def _unfair(step: ExpectedGradients, found: Found) -> Problem | None:
    """Find a rank that has more than an equal share and one gradient."""
    sizes = {name: want.nbytes for name, want in step.mean.items() if want is not None}
    limit = sum(sizes.values()) // len(found) + max(sizes.values())
    for where, gradients in found:
        held = sum(
            sizes[name] for name, gradient in gradients.items() if gradient is not None and name in sizes
        )
        if held > limit:
            return Problem(
                mistakes.UNFAIR_SHARE,
                f"{where}: at most {counted(limit, 'byte')} of gradients",
                f"{held:,} bytes",
            )
    return None


def _other_owners(module: torch.nn.Module, step: ExpectedGradients, found: Found) -> Problem | None:
    """Find a gradient on another rank than `assign_owner` says: an optimizer would look for it elsewhere."""
    numels = [p.numel() * p.requires_grad for p in module.parameters()]
    owners = shard_traffic.owners(numels, len(found))
    for (name, parameter), owner in zip(module.named_parameters(), owners, strict=True):
        if not parameter.numel() or step.mean.get(name) is None:
            continue
        where, gradients = found[owner]
        if gradients.get(name) is None:
            return Problem(mistakes.ANOTHER_OWNER, f"{where}: {name}.grad", "it is on another rank")
    return None


def _gradient_memory_trial(setting: Setting) -> TrainingTrial:
    share = trials.WHOLE_BYTES // setting.world_size
    batch = torch.ones(2, Stack.WIDTHS[0])

    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        found: drivers.HeldGradients = outcome.value
        for held, layers, when in (
            (found.peak, trials.GRADIENTS_AT_ONCE, "in backward"),
            (found.left, 2, "after it"),
        ):
            limit = share + layers * trials.LAYER_BYTES
            if held > limit:
                expected = f"{where}: at most {limit:,} bytes of gradients at a time {when}"
                return Problem(mistakes.TOO_MANY_GRADIENTS_AT_ONCE, expected, f"{held:,} bytes")
        return None

    return setting.trial(
        f"memory, gradients of {trials.WHOLE_BYTES:,} bytes",
        drivers.hold_gradients,
        lambda _, rank: (setting.model_seed(rank), batch),
        verify,
        model="stack",
        kind=trials.Sharding,
        size=0,  # any other failure tells more
    )
