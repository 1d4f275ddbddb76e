"""Check of exercise 05's ZeRO-3: training with parameters that no rank holds equals training in one process.

Gradients are told from what the student's own weights, whole before and after a step of SGD, became in it:
how a wrapper keeps its shards is its own business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.func import functional_call

from autograder.inside.drivers import sharded_data_parallelism as drivers
from autograder.inside.drivers.data_parallelism import LEARNING_RATE
from autograder.inside.drivers.small_models import build, contents, descend, gradients, loss, others
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import WRONG_TYPE
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Function, Outcome
from autograder.kit.values import kind_of
from autograder.topics.data_parallelism import gradient_traffic
from autograder.topics.data_parallelism.gradients import Expected, Gradients, sum_of, wrong_gradients
from autograder.topics.data_parallelism.mistakes import (
    BUFFERS_DIFFER,
    NAMES,
    PARAMETERS_DIFFER,
    WEIGHTS_MOVED,
)
from autograder.topics.data_parallelism.training import Training, draw_batches
from autograder.topics.data_parallelism.wrapping import different
from autograder.topics.sharded_data_parallelism import held_memory, shard_traffic
from autograder.topics.sharded_data_parallelism.banned import BANNED
from autograder.topics.sharded_data_parallelism.mistakes import (
    ALL_REDUCED,
    GATHERED_TWICE,
    GRADIENTS_REDUCED_TWICE,
    KEPT_FOR_BACKWARD,
    LEFT_OVER_AFTER_THE_STEP,
    MASTERS_NOT_KEPT,
    NAMES_OF_THE_STATE,
    NOT_FREED_IN_BACKWARD,
    NOT_FREED_IN_FORWARD,
    NOT_SHARDED,
    NOT_THE_WHOLE_STATE,
    SMALL_PARAMETER_SHARDED,
    WHOLE_PARAMETERS_HELD,
)
from autograder.topics.sharded_data_parallelism.shard_traffic import ALL_REDUCES, GATHERS, REDUCES, Shards
from autograder.topics.sharded_data_parallelism.trials import (
    LAYER_BYTES,
    NUM_LAYERS,
    Sharding,
    memory_setting,
)
from fourranks.trace import Call

# Of a sharded parameter in the small models: their weights have as many elements or more, most biases fewer.
MIN_NUMEL = 8


@dataclass(frozen=True)
class _Kind:
    """A way to train: a model, its options, how many backwards there are in a step, and how many steps."""

    title: str
    model: str = "plain"
    min_shard_numel: int = MIN_NUMEL
    compute_dtype: str | None = None
    backwards: int = 1
    steps: int = 1

    @property
    def options(self) -> dict:
        dtype = {"compute_dtype": self.compute_dtype} if self.compute_dtype else {}
        return {"min_shard_numel": self.min_shard_numel} | dtype

    @property
    def dtype(self) -> torch.dtype | None:
        return getattr(torch, self.compute_dtype) if self.compute_dtype else None


KINDS = (
    _Kind("three layers", steps=3),
    _Kind("compute_dtype bfloat16", compute_dtype="bfloat16"),
    _Kind("three backwards in a step, two of them finished together", "unused", backwards=3, steps=2),
    _Kind("every parameter sharded", "sizes", min_shard_numel=0),
    _Kind("tied parameters", "names", steps=2),
    _Kind("frozen parameters", "frozen"),
    _Kind("empty and tiny parameters", "sizes"),
    _Kind("three dtypes", "mixed"),
    _Kind("buffers", "buffers"),
    _Kind("attention", "attention", steps=2),
    _Kind("attention in bfloat16", "attention", compute_dtype="bfloat16"),
)


def fully_sharded_data_parallel(
    code: Function | Callable, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `FullyShardedDataParallel`: training equals one process, in shards, gathered and freed in time.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("FullyShardedDataParallel", code, _cases(world_sizes, seed), seed, BANNED)


def _cases(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        for number, kind in enumerate(KINDS):
            few = setting.world_size <= 3 or number % 2 == setting.world_size % 2
            if number == 0 or (kind.model == "buffers" if setting.members else few):
                yield _training_trial(setting, kind)
    for model in ("stack", "frozen stack"):
        yield _memory_trial(memory_setting(seed), model)
    yield held_memory.parameters(seed)


def _training_trial(setting: Setting, kind: _Kind) -> Training:
    drawn = [_with_signs(own) for own in draw_batches(setting, kind.steps * kind.backwards)]
    steps = [[own[at : at + kind.backwards] for at in range(0, len(own), kind.backwards)] for own in drawn]
    seed = setting.model_seed(setting.ranks[0])
    run = _Run(kind, seed, len(setting.ranks), _expected(kind, seed, steps))
    return setting.trial(
        kind.title,
        drivers.shard,
        lambda p, rank: (kind.model, setting.model_seed(rank), steps[p], kind.options),
        run.wrapped,
        run.trained,
        model=kind.model,
        kind=Sharding,
        received=lambda _: run.received(),
    )


def _with_signs(batches: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """With a first sign that takes turns from step to step, alike on all ranks: they use the same layers."""
    for step, batch in enumerate(batches):
        batch[0, 0] = batch[0, 0].abs() * (-1) ** step
    return list(batches)


# --- training in one process


def _expected(kind: _Kind, seed: int, steps: Sequence[Sequence[Sequence[torch.Tensor]]]) -> list[Expected]:
    """The gradients of each step, of the batches of all ranks: `steps[position][step][backward]`."""
    module = build(kind.model, seed)
    expected = []
    for own in zip(*steps, strict=True):
        local = [sum_of([_gradients(module, kind, batch) for batch in batches]) for batches in own]
        expected.append(Expected.of(local))
        for name, parameter in module.named_parameters():
            parameter.grad = expected[-1].mean.get(name)
        descend(module, LEARNING_RATE)
    return expected


def _gradients(module: torch.nn.Module, kind: _Kind, batch: torch.Tensor) -> Gradients:
    """Of one backward; with a dtype, parameters and inputs are used in that."""
    module.zero_grad()
    dtype = kind.dtype
    used = {name: parameter.to(dtype or parameter.dtype) for name, parameter in module.named_parameters()}
    inputs = batch.to(dtype or batch.dtype)
    loss(functional_call(module, used, (inputs,), others(kind.model, batch))).backward()
    return gradients(module)


# --- what may be wrong


@dataclass(frozen=True)
class _Run:
    """A way to train, and what must come of it on each rank."""

    kind: _Kind
    seed: int
    num_ranks: int
    expected: Sequence[Expected]

    def module(self) -> torch.nn.Module:
        """As rank 0 has it in the beginning."""
        return build(self.kind.model, self.seed)

    def shards(self) -> Shards:
        itemsize = self.kind.dtype.itemsize if self.kind.dtype else None
        return Shards(self.module(), self.kind.min_shard_numel, self.num_ranks, itemsize)

    def received(self) -> int:
        """Bytes of the parameters that are used and that a rank does not hold, once a step."""
        shards, parameters = self.shards(), dict(self.module().named_parameters())
        used = [
            parameters[name]
            for step in self.expected
            for name, gradient in step.mean.items()
            if gradient is not None and shards.shards(parameters[name])
        ]
        return sum(shards.others_bytes(parameter) for parameter in used)

    def wrapped(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """What is wrong before the first step: with the whole model, and with what this rank holds of it."""
        value, module = outcome.value, self.module()
        began = self._parts(outcome)[0].at("began")
        buffers = contents(module)[1]
        state = module.state_dict()
        return (
            first(_other_names(state, got, where) for got in value["states"])
            or different(_without(state, buffers), value["states"][0], PARAMETERS_DIFFER, where)
            or different(_only(state, buffers), value["states"][0], BUFFERS_DIFFER, where)
            or gradient_traffic.copied_twice(module, outcome.calls, began, where)
            or self._wrong_shards(value, where)
        )

    def _parts(self, outcome: Outcome) -> list[Stretch]:
        return stretches(outcome, "began", self.kind.steps)

    def _wrong_shards(self, value: dict, where: str) -> Problem | None:
        shards, held = self.shards(), value["held"]
        parameters = {f"module.{name}": p for name, p in self.module().named_parameters()}
        if set(held) != set(parameters) or not value["kept"]:
            others = sorted(set(held) ^ set(parameters))[:3]
            got = f"differing: {', '.join(others)}" if others else "no module in .module"
            return Problem(NAMES, f"{where}: parameters() with the names of the module's own", got)
        for name, parameter in parameters.items():
            shape, dtype = held[name]
            if dtype != str(parameter.dtype):
                return Problem(MASTERS_NOT_KEPT, f"{where}, {name}: {parameter.dtype}", dtype)
            if shape != list(parameter.shape) and not shards.shards(parameter):
                expected = f"{where}, {name}: shape {list(parameter.shape)}, as it was"
                return Problem(SMALL_PARAMETER_SHARDED, expected, f"shape {shape}")
        total = sum(math.prod(shape) for shape, _ in held.values())
        if total > shards.held:
            expected = f"{where}: {shards.held} elements in shards and small parameters"
            return Problem(NOT_SHARDED, expected, f"{total} elements")
        return None

    def trained(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """What is wrong with each step: gradients, then what was communicated for them."""
        states, steps = outcome.value["states"], outcome.value["steps"]
        pairs = zip(states, states[1:], steps, self.expected, self._parts(outcome), strict=False)
        problems = (
            self._step(before, after, step, want, part, at, f"{where}, step {number}")
            for number, (before, after, step, want, part) in enumerate(pairs, 1)
        )
        return first(problems)

    def _step(
        self,
        before: dict,
        after: dict,
        step: dict,
        want: Expected,
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
            or self._wrong_gradients(got, want, at, where)
            or different(_only(before, self._still()), after, WEIGHTS_MOVED, where)
            or self._masters(step, where)
            or self._heavy(forward, backward, where)
        )

    def _still(self) -> list[str]:
        """Names of what training leaves alone: frozen parameters and buffers."""
        module = self.module()
        parameters = module.named_parameters(remove_duplicate=False)
        frozen = [name for name, parameter in parameters if not parameter.requires_grad]
        return [*frozen, *contents(module)[1]]

    def _wrong_gradients(self, got: Gradients, want: Expected, at: int, where: str) -> Problem | None:
        if self.kind.dtype:  # sums in this dtype, in any order
            got = _in_dtype(got, self.kind.dtype)
            want = Expected(
                _in_dtype(want.mean, self.kind.dtype),
                [_in_dtype(each, self.kind.dtype) for each in want.local],
            )
        return wrong_gradients(got, want, at, where)

    def _masters(self, step: dict, where: str) -> Problem | None:
        """A gradient that is not in its parameter's own dtype."""
        dtypes = {f"module.{name}": str(p.dtype) for name, p in self.module().named_parameters()}
        for name, (_, dtype) in step["gradients"].items():
            if dtype != dtypes[name]:
                return Problem(MASTERS_NOT_KEPT, f"{where}, {name}.grad: {dtypes[name]}", dtype)
        return None

    def _heavy(self, forward: Sequence[Call], backward: Sequence[Call], where: str) -> Problem | None:
        if self.num_ranks == 1 or self.kind.backwards > 1:
            return None
        shards = self.shards()
        times = 3 if self.kind.model == "names" else 1  # as often as one of its parameters is used
        both = [*forward, *backward]
        return (
            shard_traffic.too_much(both, ALL_REDUCES, shards.small, ALL_REDUCED, "all-reduces", where)
            or self._other_dtype(both, where)
            or shard_traffic.too_large(both, shards.layer, where)
            or shard_traffic.too_much(
                forward, GATHERS, times * shards.sharded, GATHERED_TWICE, "all-gathers in forward", where
            )
            or shard_traffic.too_much(
                backward, GATHERS, times * shards.sharded, GATHERED_TWICE, "all-gathers in backward", where
            )
            or shard_traffic.too_much(
                both, REDUCES, times * shards.trained, GRADIENTS_REDUCED_TWICE, "reduce-scatters", where
            )
        )

    def _other_dtype(self, calls: Sequence[Call], where: str) -> Problem | None:
        if not self.kind.compute_dtype:
            return None
        large = [call for call in calls if call.op not in ALL_REDUCES]
        return shard_traffic.other_dtypes(large, self.kind.compute_dtype, where)


def _other_names(state: dict, got: object, where: str) -> Problem | None:
    """A state dict that is not of the wrapped module: names, or shapes and dtypes."""
    if not isinstance(got, dict):
        return Problem(WRONG_TYPE, f"{where}: a dict from full_state_dict()", kind_of(got))
    if set(got) != set(state):
        others = ", ".join(sorted(set(got) ^ set(state))[:3])
        return Problem(
            NAMES_OF_THE_STATE, f"{where}: names such as {next(iter(state))}", f"differing: {others}"
        )
    for name, want in state.items():
        if kind_of(got[name]) != kind_of(want):
            return Problem(NOT_THE_WHOLE_STATE, f"{where}, {name}: {kind_of(want)}", kind_of(got[name]))
    return None


def _only(state: dict, names: Sequence[str]) -> dict:
    return {name: value for name, value in state.items() if name in names}


def _without(state: dict, names: Sequence[str]) -> dict:
    return {name: value for name, value in state.items() if name not in names}


def _implied(before: dict, after: dict, want: Expected) -> Gradients:
    """The gradients by which a step of SGD has made one state of the other."""
    return {name: (before[name] - after[name]) / LEARNING_RATE for name in want.mean}


def _in_dtype(named: Gradients, dtype: torch.dtype) -> Gradients:
    return {name: None if gradient is None else gradient.to(dtype) for name, gradient in named.items()}


# --- memory


def _memory_trial(setting: Setting, model: str) -> Training:
    batch, whole = torch.ones(2, 48), NUM_LAYERS * LAYER_BYTES
    share, slack = whole // setting.world_size, 2 * LAYER_BYTES
    limits = {
        "held": share + slack,
        "forward": whole // 2,
        "backward": whole // 2,
        "left": 2 * share + slack,  # with the gradients
    }

    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        value = outcome.value
        _, second = stretches(outcome, "began", 2)
        turn = second.at("backward")
        gathers = [call for call in second.calls if call.op in GATHERS and call.start >= turn]
        kinds = {
            "held": WHOLE_PARAMETERS_HELD,
            "forward": NOT_FREED_IN_FORWARD if gathers else KEPT_FOR_BACKWARD,
            "backward": NOT_FREED_IN_BACKWARD if gathers else KEPT_FOR_BACKWARD,
            "left": LEFT_OVER_AFTER_THE_STEP,
        }
        for name, kind in kinds.items():
            if value[name] > limits[name]:
                what = {"held": "the shards", "left": "shards and gradients"}.get(name, "besides them")
                expected = f"{where}: {what}, at most {limits[name]:,} of {whole:,} bytes"
                return Problem(kind, expected, f"{value[name]:,} bytes")
        step = [call for call in second.calls if call.moves_data]
        return shard_traffic.too_much_under_way(step, limits["backward"], NOT_FREED_IN_BACKWARD, where)

    trial = setting.trial(
        f"memory, {'frozen ' * (model != 'stack')}parameters of {whole:,} bytes",
        drivers.hold_parameters,
        lambda _, rank: (model, setting.model_seed(rank), batch),
        verify,
        model=model,
        kind=Sharding,
    )
    return replace(trial, size=0)  # what else goes wrong tells more
