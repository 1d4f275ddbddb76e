"""Training with parameters that no rank holds, and its right result: that of one process.

Gradients are told from what the student's own weights, whole before and after a step of SGD, became in it:
how a wrapper keeps its shards is its own business. Used by the checks of exercise 05's ZeRO-3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch.func import functional_call

from autograder.inside.drivers import fully_sharded as drivers
from autograder.inside.drivers import small_models as models
from autograder.inside.drivers.data_parallelism import LEARNING_RATE
from autograder.inside.reports import as_many
from autograder.kit.mistakes import WRONG_TYPE
from autograder.kit.problem import Problem, first
from autograder.kit.settings import Setting
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Outcome
from autograder.kit.values import kind_of
from autograder.topics.data_parallelism import gradient_traffic
from autograder.topics.data_parallelism import mistakes as training_mistakes
from autograder.topics.data_parallelism.gradients import ExpectedGradients, sum_of, wrong_gradients
from autograder.topics.data_parallelism.training import TrainingTrial, draw_batches
from autograder.topics.data_parallelism.wrapping import different
from autograder.topics.sharded_data_parallelism import mistakes, shard_traffic, trials
from autograder.topics.sharded_data_parallelism.shard_traffic import (
    ALL_REDUCES,
    GATHERS,
    REDUCES,
    ShardTraffic,
)
from fourranks.trace import Call

# Of a sharded parameter in the small models: their weights have as many elements or more, most biases fewer.
MIN_NUMEL = 8


@dataclass(frozen=True)
class Kind:
    """A way to train: a model, its options, how many backwards there are in a step, and how many steps."""

    title: str
    model: str = "plain"
    min_shard_numel: int = MIN_NUMEL
    compute_dtype: str | None = None
    backwards: int = 1
    steps: int = 1

    @property
    def options(self) -> dict[str, Any]:
        dtype = {"compute_dtype": self.compute_dtype} if self.compute_dtype else {}
        return {"min_shard_numel": self.min_shard_numel, **dtype}

    @property
    def dtype(self) -> torch.dtype | None:
        return getattr(torch, self.compute_dtype) if self.compute_dtype else None


KINDS = (
    Kind("three layers", steps=3),
    Kind("compute_dtype bfloat16", compute_dtype="bfloat16"),
    Kind("three backwards in a step, two of them finished together", "unused", backwards=3, steps=2),
    Kind("every parameter sharded", "sizes", min_shard_numel=0),
    Kind("tied parameters", "names", steps=2),
    Kind("frozen parameters", "frozen"),
    Kind("empty and tiny parameters", "sizes"),
    Kind("three dtypes", "mixed"),
    Kind("buffers", "buffers"),
    Kind("attention", "attention", steps=2),
    Kind("attention in bfloat16", "attention", compute_dtype="bfloat16"),
)


def training_trial(setting: Setting, kind: Kind) -> TrainingTrial:
    """Make a trial of a few steps of this kind, which must equal those of one process."""
    drawn = [_with_signs(own) for own in draw_batches(setting, kind.steps * kind.backwards)]
    steps = [[own[at : at + kind.backwards] for at in range(0, len(own), kind.backwards)] for own in drawn]
    seed = setting.model_seed(setting.ranks[0])
    run = _ShardedRun(kind, seed, len(setting.ranks), _expected(kind, seed, steps))
    return setting.trial(
        kind.title,
        drivers.shard,
        lambda p, rank: (kind.model, setting.model_seed(rank), steps[p], kind.options),
        run.wrapped,
        run.trained,
        model=kind.model,
        kind=trials.Sharding,
        received=lambda _: run.received(),
    )


def _with_signs(batches: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Give batches a first sign that takes turns, alike on all ranks, so that they use the same layers."""
    for step, batch in enumerate(batches):
        batch[0, 0] = batch[0, 0].abs() * (-1) ** step
    return list(batches)


# --- training in one process


def _expected(
    kind: Kind, seed: int, steps: Sequence[Sequence[Sequence[torch.Tensor]]]
) -> list[ExpectedGradients]:
    """Return the gradients of each step, of the batches of all ranks: `steps[position][step][backward]`."""
    module = models.build(kind.model, seed)
    expected = []
    for own in zip(*steps, strict=True):
        local = [sum_of([_gradients(module, kind, batch) for batch in batches]) for batches in own]
        expected.append(ExpectedGradients.of(local))
        for name, parameter in module.named_parameters():
            parameter.grad = expected[-1].mean.get(name)
        models.descend(module, LEARNING_RATE)
    return expected


def _gradients(module: torch.nn.Module, kind: Kind, batch: torch.Tensor) -> models.Gradients:
    """Return the gradients of one backward; with a dtype, parameters and inputs are used in that."""
    module.zero_grad()
    dtype = kind.dtype
    used = {name: parameter.to(dtype or parameter.dtype) for name, parameter in module.named_parameters()}
    inputs = batch.to(dtype or batch.dtype)
    models.loss(functional_call(module, used, (inputs,), models.others(kind.model, batch))).backward()
    return models.gradients(module)


# --- what may be wrong


@dataclass(frozen=True)
class _ShardedRun:
    """A way to train, and what must come of it on each rank."""

    kind: Kind
    seed: int
    num_ranks: int
    expected: Sequence[ExpectedGradients]

    @functools.cached_property
    def module(self) -> torch.nn.Module:
        """Make the module as rank 0 has it in the beginning."""
        return models.build(self.kind.model, self.seed)

    @functools.cached_property
    def shards(self) -> ShardTraffic:
        itemsize = self.kind.dtype.itemsize if self.kind.dtype else None
        return ShardTraffic(self.module, self.kind.min_shard_numel, self.num_ranks, itemsize)

    def received(self) -> int:
        """Count the bytes of the parameters that are used and that a rank does not hold, once a step."""
        shards, parameters = self.shards, dict(self.module.named_parameters())
        used = [
            parameters[name]
            for step in self.expected
            for name, gradient in step.mean.items()
            if gradient is not None and shards.shards(parameters[name])
        ]
        return sum(shards.others_bytes(parameter) for parameter in used)

    def wrapped(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find what is wrong before the first step: with the whole model, or with what this rank holds."""
        found: drivers.Sharded = outcome.value
        module, states = self.module, as_many(found.states, self.kind.steps + 1)
        began = self._parts(outcome)[0].at("began")
        buffers = models.contents(module)[1]
        state = module.state_dict()
        return (
            first(_other_names(state, got, where) for got in states)
            or self._other_parameters(_without(state, buffers), _named(states[0]), where)
            or different(_only(state, buffers), _named(states[0]), training_mistakes.BUFFERS_DIFFER, where)
            or gradient_traffic.copied_twice(module, outcome.calls, began, where)
            or self._wrong_shards(found, where)
        )

    def _other_parameters(self, want: models.Named, got: models.Named, where: str) -> Problem | None:
        """Find other parameters than rank 0's, or rank 0's that were rounded to the dtype for computing."""
        problem = different(want, got, training_mistakes.PARAMETERS_DIFFER, where)
        if problem is None or self.kind.dtype is None:
            return problem
        dtype = self.kind.dtype
        rounded, found = ({name: named[name].to(dtype) for name in want} for named in (want, got))
        other = different(rounded, found, training_mistakes.PARAMETERS_DIFFER, where)
        return problem if other else replace(problem, mistake=mistakes.MASTERS_NOT_KEPT)

    def _parts(self, outcome: Outcome) -> list[Stretch]:
        return stretches(outcome, "began", self.kind.steps)

    def _wrong_shards(self, found: drivers.Sharded, where: str) -> Problem | None:
        shards, held = self.shards, found.held
        parameters = {f"module.{name}": p for name, p in self.module.named_parameters()}
        if set(held) != set(parameters) or not found.kept:
            others = sorted(set(held) ^ set(parameters))[:3]
            got = f"differing: {', '.join(others)}" if others else "no module in .module"
            return Problem(
                training_mistakes.NAMES, f"{where}: parameters() with the names of the module's own", got
            )
        for name, parameter in parameters.items():
            shape, dtype = held[name]
            if dtype != str(parameter.dtype):
                return Problem(mistakes.MASTERS_NOT_KEPT, f"{where}, {name}: {parameter.dtype}", dtype)
            if shape != list(parameter.shape) and not shards.shards(parameter):
                expected = f"{where}, {name}: shape {list(parameter.shape)}, as it was"
                return Problem(mistakes.SMALL_PARAMETER_SHARDED, expected, f"shape {shape}")
        total = sum(math.prod(shape) for shape, _ in held.values())
        if total > shards.held:
            expected = f"{where}: {shards.held} elements in shards and small parameters"
            return Problem(mistakes.NOT_SHARDED, expected, f"{total} elements")
        return None

    def trained(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find what is wrong with each step: gradients, then what was communicated for them."""
        found: drivers.Sharded = outcome.value
        states, dtypes = list(map(_named, found.states)), as_many(found.dtypes, self.kind.steps)
        steps = zip(states, states[1:], dtypes, self.expected, self._parts(outcome), strict=False)
        return first(
            _since(number, self._step(before, after, own, want, part, at, f"{where}, step {number}"))
            for number, (before, after, own, want, part) in enumerate(steps, 1)
        )

    def _step(
        self,
        before: models.Named,
        after: models.Named,
        dtypes: dict[str, str],
        want: ExpectedGradients,
        part: Stretch,
        at: int,
        where: str,
    ) -> Problem | None:
        own = [call for call in part.until("ended") if call.moves_data]
        turn = part.at("backward")
        forward = [call for call in own if call.start < turn]
        backward = [call for call in own if call.start >= turn]
        got = _implied(before, after, want)
        return (
            shard_traffic.broken_rules(own, (*GATHERS, *REDUCES, *ALL_REDUCES), where)
            or self._wrong_gradients(got, want, dtypes, at, where)
            or different(_only(before, self._still()), after, training_mistakes.WEIGHTS_MOVED, where)
            or self._masters(dtypes, where)
            or self._heavy(forward, backward, where)
        )

    def _still(self) -> list[str]:
        """Return the names of what training leaves alone: frozen parameters and buffers."""
        module = self.module
        parameters = module.named_parameters(remove_duplicate=False)
        frozen = [name for name, parameter in parameters if not parameter.requires_grad]
        return [*frozen, *models.contents(module)[1]]

    def _wrong_gradients(
        self, got: models.Gradients, want: ExpectedGradients, dtypes: dict[str, str], at: int, where: str
    ) -> Problem | None:
        if self.kind.dtype:  # sums in this dtype, in any order
            got = _in_dtype(got, self.kind.dtype)
            want = ExpectedGradients(
                _in_dtype(want.mean, self.kind.dtype),
                [_in_dtype(each, self.kind.dtype) for each in want.local],
            )
        problem = wrong_gradients(got, want, at, where)
        if problem is None or problem.mistake is not training_mistakes.WRONG_GRADIENT:
            return problem
        for name, mean in want.mean.items():
            if mean is not None and mean.any() and f"module.{name}" not in dtypes:
                expected = f"{where}, module.{name}.grad: a gradient"
                return Problem(mistakes.NO_SHARDED_GRADIENT, expected, "None")
        return problem

    def _masters(self, dtypes: dict[str, str], where: str) -> Problem | None:
        """Find a gradient that is not in its parameter's own dtype."""
        for name, parameter in self.module.named_parameters():
            want, dtype = str(parameter.dtype), dtypes.get(f"module.{name}")
            if dtype not in (None, want):
                return Problem(mistakes.MASTERS_NOT_KEPT, f"{where}, module.{name}.grad: {want}", dtype)
        return None

    def _heavy(self, forward: Sequence[Call], backward: Sequence[Call], where: str) -> Problem | None:
        if self.num_ranks == 1 or self.kind.backwards > 1:
            return None
        shards, both, too_much = self.shards, [*forward, *backward], shard_traffic.too_much
        times = 3 if self.kind.model == "names" else 1  # as often as one of its parameters is used
        gathered, reduced, twice = times * shards.sharded, times * shards.trained, mistakes.GATHERED_TWICE
        reduced_twice = mistakes.GRADIENTS_REDUCED_TWICE
        return (
            too_much(both, ALL_REDUCES, shards.small, mistakes.MORE_ALL_REDUCED, "all-reduces", where)
            or self._other_dtype(both, where)
            or shard_traffic.too_large(both, shards.layer, where)
            or too_much(forward, GATHERS, gathered, twice, "all-gathers in forward", where)
            or too_much(backward, GATHERS, gathered, twice, "all-gathers in backward", where)
            or too_much(both, REDUCES, reduced, reduced_twice, "reduce-scatters", where)
        )

    def _other_dtype(self, calls: Sequence[Call], where: str) -> Problem | None:
        if not self.kind.compute_dtype:
            return None
        large = [call for call in calls if call.op not in ALL_REDUCES]
        return shard_traffic.other_dtypes(large, self.kind.compute_dtype, where)


def _since(step: int, problem: Problem | None) -> Problem | None:
    """Say of wrong gradients what that means for shards, and whether those of an earlier step were right."""
    if problem is None or problem.mistake is not training_mistakes.WRONG_GRADIENT:
        return problem
    known = mistakes.WRONG_SHARDED_GRADIENT if step == 1 else mistakes.WRONG_AFTER_THE_FIRST_STEP
    return replace(problem, mistake=known)


def _other_names(state: models.Named, got: object, where: str) -> Problem | None:
    """Find a state dict that is not of the wrapped module: names, or shapes and dtypes."""
    if not isinstance(got, dict):
        return Problem(WRONG_TYPE, f"{where}: a dict from full_state_dict()", kind_of(got))
    sides = {"without": set(state) - set(got), "also": set(got) - set(state)}
    differing = [f"{side} {', '.join(sorted(map(str, names))[:3])}" for side, names in sides.items() if names]
    if differing:
        expected = f"{where}: the names of the module's own state_dict()"
        return Problem(mistakes.NAMES_OF_THE_STATE, expected, "; ".join(differing))
    for name, want in state.items():
        if kind_of(got[name]) != kind_of(want):
            expected = f"{where}, {name}: {kind_of(want)}"
            return Problem(mistakes.NOT_THE_WHOLE_STATE, expected, kind_of(got[name]))
    return None


def _named(state: object) -> models.Named:
    return cast(models.Named, state)  # as `_other_names` has seen


def _only(state: models.Named, names: Collection[str]) -> models.Named:
    return {name: value for name, value in state.items() if name in names}


def _without(state: models.Named, names: Collection[str]) -> models.Named:
    return {name: value for name, value in state.items() if name not in names}


def _implied(before: models.Named, after: models.Named, want: ExpectedGradients) -> models.Gradients:
    """Return the gradients by which a step of SGD has made one state of the other."""
    return {name: (before[name] - after[name]) / LEARNING_RATE for name in want.mean}


def _in_dtype(named: models.Gradients, dtype: torch.dtype) -> models.Gradients:
    return {name: None if gradient is None else gradient.to(dtype) for name, gradient in named.items()}
