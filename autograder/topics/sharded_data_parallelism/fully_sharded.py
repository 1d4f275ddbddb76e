"""Checks of exercise 05's ZeRO-3: parameters are gathered when they are read, freed, and prefetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from autograder.inside.drivers import fully_sharded as drivers
from autograder.inside.drivers.small_models import Stack
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings, settings_of
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Outcome
from autograder.topics.data_parallelism.training import TrainingTrial
from autograder.topics.sharded_data_parallelism import held_memory, mistakes, shard_traffic, trials
from autograder.topics.sharded_data_parallelism.banned import BANNED
from autograder.topics.sharded_data_parallelism.shard_traffic import GATHERS
from autograder.topics.sharded_data_parallelism.sharded_training import KINDS, Kind, training_trial
from fourranks.trace import Call

# A wrapper that starts a transfer early may forget it, or use what has come in another step.
PREFETCHED = ("three layers", "three backwards in a step, two of them finished together", "attention")
_SHARE, _SLACK = trials.WHOLE_BYTES // 4, 2 * trials.LAYER_BYTES  # of four ranks
_MOST = trials.WHOLE_BYTES // 2  # besides the shards
_BATCH = torch.ones(2, Stack.WIDTHS[0])


@check("ShardedModule", banned=BANNED)
def sharded_module(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `ShardedModule`: training equals one process, in shards that are freed in forward."""
    yield from _training(world_sizes, seed, KINDS)
    for setting in trials.memory_settings(world_sizes, seed):
        yield _evaluation_trial(setting)


@check("FullyShardedDataParallel", banned=BANNED)
def fully_sharded_data_parallel(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `FullyShardedDataParallel`: training equals one process, in shards that are freed in time."""
    yield from _training(world_sizes, seed, KINDS)
    for setting in trials.memory_settings(world_sizes, seed):
        yield from _memory_trials(setting)
    for setting in settings_of(2, world_sizes, seed):
        yield held_memory.parameters(setting)


@check("PrefetchingFullyShardedDataParallel", banned=BANNED)
def prefetching_fully_sharded_data_parallel(
    code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> Cases:
    """Check `PrefetchingFullyShardedDataParallel`: one layer comes while another computes."""
    yield from _training(world_sizes, seed, [kind for kind in KINDS if kind.title in PREFETCHED])
    for setting in trials.memory_settings(world_sizes, seed):
        yield from _memory_trials(setting, mistakes.TOO_FAR_AHEAD, mistakes.TOO_FAR_AHEAD)
        yield _prefetch_trial(setting)


def _training(world_sizes: Sequence[int], seed: int, kinds: Sequence[Kind]) -> Iterator[TrainingTrial]:
    for setting in settings(world_sizes, seed):
        for number, kind in enumerate(kinds):
            if number == 0 or (kind.model == "buffers" if setting.members else setting.tries(number)):
                yield training_trial(setting, kind)


# --- memory


def _memory_trials(
    setting: Setting,
    in_forward: Mistake = mistakes.NOT_FREED_IN_FORWARD,
    in_backward: Mistake = mistakes.NOT_FREED_IN_BACKWARD,
) -> Iterator[TrainingTrial]:
    for model in ("stack", "frozen stack"):
        yield _memory_trial(setting, model, in_forward, in_backward)


def _memory_trial(setting: Setting, model: str, in_forward: Mistake, in_backward: Mistake) -> TrainingTrial:
    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        found: drivers.HeldParameters = outcome.value
        _, second = stretches(outcome, "began", 2)
        turn = second.at("backward")
        gathers = any(call.op in GATHERS and call.start >= turn for call in second.calls)
        forward, backward = (in_forward, in_backward) if gathers else (mistakes.KEPT_FOR_BACKWARD,) * 2
        step = [call for call in second.calls if call.moves_data]
        return (
            _shards_only(found.held, where)
            or _too_much(found.forward, _MOST, "besides them", forward, where)
            or _too_much(found.backward, _MOST, "besides them", backward, where)
            or _left_over(found.left, 2 * _SHARE + _SLACK, "shards and gradients", where)
            or shard_traffic.too_much_under_way(step, _MOST, in_backward, where)
        )

    return setting.trial(
        f"memory, {'frozen ' * (model != 'stack')}parameters of {trials.WHOLE_BYTES:,} bytes",
        drivers.hold_parameters,
        lambda _, rank: (model, setting.model_seed(rank), _BATCH),
        verify,
        model=model,
        kind=trials.Sharding,
        size=0,  # any other failure tells more
    )


def _evaluation_trial(setting: Setting) -> TrainingTrial:
    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        found: drivers.HeldInEvaluation = outcome.value
        return (
            _shards_only(found.held, where)
            or _too_much(found.forward, _MOST, "besides them", mistakes.NOT_FREED_IN_FORWARD, where)
            or _left_over(found.left, _SHARE + _SLACK, "the shards", where)
        )

    return setting.trial(
        f"memory without gradients, parameters of {trials.WHOLE_BYTES:,} bytes",
        drivers.evaluate_parameters,
        lambda _, rank: (setting.model_seed(rank), _BATCH),
        verify,
        kind=trials.Sharding,
        size=0,
    )


def _shards_only(held: int, where: str) -> Problem | None:
    return _too_much(held, _SHARE + _SLACK, "the shards", mistakes.WHOLE_PARAMETERS_HELD, where)


def _left_over(held: int, limit: int, what: str, where: str) -> Problem | None:
    return _too_much(held, limit, what, mistakes.LEFT_OVER_AFTER_THE_STEP, where)


def _too_much(held: int, limit: int, what: str, mistake: Mistake, where: str) -> Problem | None:
    """Find more bytes than the limit."""
    if held <= limit:
        return None
    expected = f"{where}: {what}, at most {limit:,} of {trials.WHOLE_BYTES:,} bytes"
    return Problem(mistake, expected, f"{held:,} bytes")


# --- prefetching


def _prefetch_trial(setting: Setting) -> TrainingTrial:
    batches = setting.draws.randn((4, 2, drivers.Milestones.WIDTH))

    def verify(at: int, where: str, outcome: Outcome) -> Problem | None:
        steps = enumerate(stretches(outcome, "began", drivers.PREFETCHING_STEPS), 1)
        return first(
            _since_the_order_changed(number, _late(step, f"{where}, step {number}"))
            for number, step in steps
            if number not in (1, drivers.REVERSED_FROM)  # in these the order is a new one
        )

    return setting.trial(
        f"{drivers.Milestones.NUM_LAYERS} layers, in another order from step {drivers.REVERSED_FROM} on",
        drivers.prefetch,
        lambda position, rank: (setting.model_seed(rank), batches[position].clone()),
        verify,
        kind=trials.Sharding,
    )


def _since_the_order_changed(step: int, problem: Problem | None) -> Problem | None:
    """Say of a problem that only steps in the new order have that it is the order."""
    if problem and step > drivers.REVERSED_FROM:
        return replace(problem, mistake=mistakes.OLD_ORDER)
    return problem


def _late(step: Stretch, where: str) -> Problem | None:
    """Find a layer whose all-gather does not run while the layer that is used before it computes."""
    layers = range(drivers.Milestones.NUM_LAYERS)
    gathers = sorted((call for call in step.calls if call.op in GATHERS), key=lambda call: call.start)
    most = 2 * len(layers)
    if not most - 1 <= len(gathers) <= most:  # the last layer's may serve both ways
        mistake = mistakes.GATHERED_TWICE if len(gathers) > most else mistakes.KEPT_FOR_BACKWARD
        expected = f"{where}: an all-gather for each layer in forward, and in backward"
        return Problem(mistake, expected, f"{len(gathers)} for {len(layers)} layers")
    forward, backward = gathers[: len(layers)], gathers[: -len(layers) : -1]
    return first(
        _late_in(gathers_of_layers, direction, step, where)
        for direction, gathers_of_layers in (
            ("forward", {layer: (forward[layer], layer - 1) for layer in layers[1:]}),
            ("backward", {layer: (backward[layer], layer) for layer in layers[:-1]}),
        )
    )


def _late_in(
    gathers: dict[int, tuple[Call, int]], direction: str, step: Stretch, where: str
) -> Problem | None:
    """Find an all-gather that starts, or is waited for, before the other layer is through.

    Args:
        gathers: for each layer its all-gather, and the milestone that the layer used before it ends with.
    """
    for layer, (gather, milestone) in gathers.items():
        through = step.at(f"{direction} {milestone}")
        expected = (
            f"{where}, {direction}: the all-gather of layer {layer} runs while the one before it computes"
        )
        if gather.start > through:
            return Problem(mistakes.NOT_PREFETCHED, expected, "it starts when that has ended")
        if gather.end is not None and gather.end < through:
            return Problem(mistakes.PREFETCH_WAITED_FOR, expected, "it is waited for before that has ended")
    return None
