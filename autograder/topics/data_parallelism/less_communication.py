"""Checks of exercise 04's ways to communicate less: local steps, and compressed gradients.

The right results are computed here by a simulation of all ranks. Where a student's differ, the
simulation is run with the usual mistakes, to say which one was made.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from autograder.inside.drivers import less_communication as drivers
from autograder.inside.drivers.small_models import Named
from autograder.inside.reports import Unreadable, as_many
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import given, named, not_waited_for_on_any
from autograder.kit.settings import WORLD_SIZES, Setting, some_ranks, taking_part
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import close, difference_beyond, kind_of, same
from autograder.topics.collectives.mistakes import PATTERNS, UNTOUCHED
from autograder.topics.data_parallelism import less_communication_mistakes as mistakes
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.simulations import Combine, Compression, LocalSgd, mean

RATIOS = (0.1, 0.3, 1.0)
SHAPES = ((7,), (5, 3), (), (0,), (2, 3, 4))
ROUNDS = 3
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}  # sums over the ranks may come in any order

Limit = tuple[int, Mistake, str]  # bytes that a rank may send, the mistake of more, and both in words
Ranks = list[tuple[str, Outcome]]  # those that take part, in words, each with what it left behind
Gradients = list[torch.Tensor]


class _GroupTrial(Trial):
    """A trial that may be the only one of a group that is not the default one."""

    patterns: ClassVar = PATTERNS[:1]


def _settings(world_sizes: Sequence[int], seed: int) -> Iterator[Setting]:
    """Give every world, and then a group in the largest one; all draw one after another."""
    draws, largest = Draws(seed), max(world_sizes)
    yield from (Setting(world_size, None, draws) for world_size in world_sizes)
    if largest >= 3:
        yield Setting(largest, some_ranks(largest), draws)


def _trial(
    setting: Setting,
    what: str,
    driver: Callable[..., Any],
    inputs: Sequence[tuple[Any, ...]],
    verify: Callable[[Ranks], Problem | None],
    limit: Limit,
    nbytes: int,
    size: int,
) -> _GroupTrial:
    """Make a trial.

    Args:
        inputs: for each rank that takes part.
        limit: to what each of them sends.
        nbytes: that each of them needs from others, if there are any.
    """
    return setting.trial(
        what,
        driver,
        lambda position, _: inputs[position],
        kind=_GroupTrial,
        verify=lambda outcomes: verify(taking_part(outcomes)) or _too_much(outcomes, *limit),
        received=lambda _: nbytes,
        size=size,
    )


# --- local_sgd_round


# The usual mistakes: how the values of all ranks are combined, and when gradients are cleared.
_ROUND_MISTAKES: Sequence[tuple[Mistake, Combine, str]] = (
    (mistakes.NOT_AVERAGED, lambda values, rank: values[rank], "before"),
    (mistakes.SUMMED_WEIGHTS, lambda values, rank: torch.stack(values).sum(0), "before"),
    (mistakes.WEIGHTS_OF_ONE_RANK, lambda values, rank: values[0], "before"),
    (mistakes.GRADIENTS_ADD_UP, mean, "never"),
    (mistakes.GRADIENTS_ADD_UP, mean, "after"),
)


@check(banned=BANNED)
def local_sgd_round(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `local_sgd_round`: the weights after some rounds, and that only their average is communicated."""
    for setting in _settings(world_sizes, seed):
        num_ranks = len(setting.ranks)
        local = _draw_rounds(num_ranks, ("SGD", "AdamW")[setting.world_size % 2], setting.draws)
        yield _trial(
            setting,
            f"{local.kind}, {ROUNDS} rounds",
            drivers.local_sgd,
            [(local.state, local.kind, rounds) for rounds in local.rounds],
            partial(_wrong_round, local),
            _heavy_rounds(local),
            ROUNDS * local.nbytes,
            size=2 if num_ranks == 2 else 1,  # where all take as many steps, more can be told
        )


def _draw_rounds(num_ranks: int, kind: str, draws: Draws) -> LocalSgd:
    def draw(*shape: int) -> torch.Tensor:
        return draws.randn(shape, torch.float64)

    state = {name: draw(*tensor.shape) for name, tensor in drivers.make_model().state_dict().items()}
    # Ranks may take different numbers of steps, or none; with 2 ranks they take as many, so that talking in
    # between is no deadlock.
    turns = range(ROUNDS)
    steps = [[2 if num_ranks == 2 else (rank + turn) % 4 for turn in turns] for rank in range(num_ranks)]
    rounds = [[[[draw(4, 3), draw(4, 2)] for _ in range(number)] for number in own] for own in steps]
    return LocalSgd(state, kind, rounds)


def _wrong_round(local: LocalSgd, ranks: Ranks) -> Problem | None:
    return (
        _talked_early(ranks)
        or not_waited_for_on_any(ranks)
        or _wrong_weights(local, ranks)
        or _gathered(ranks)
    )


def _talked_early(ranks: Ranks) -> Problem | None:
    for rank, outcome in ranks:
        for number, part in enumerate(stretches(outcome, "began", ROUNDS), 1):
            last = max(part.all("loss"), default=0.0)
            for call in part.calls:
                if call.start < last:
                    expected = f"round {number}: local steps only"
                    got = f"{rank} calls {call.op} in line {call.line} before its last step"
                    return Problem(mistakes.COMMUNICATION_BETWEEN_LOCAL_STEPS, expected, got)
    return None


def _wrong_weights(local: LocalSgd, ranks: Ranks) -> Problem | None:
    rounds = [as_many(outcome.value, ROUNDS) for _, outcome in ranks]
    for number, wanted in enumerate(local.simulate(mean)):
        found = [own[number] for own in rounds]
        for (rank, _), got, want in zip(ranks, found, wanted, strict=True):
            if got.keys() != want.keys():
                raise Unreadable("weights of another model")
            for name in want:
                if not _equal(got[name], want[name]):
                    expected, shown = _differing(want[name], got[name])
                    place = f"round {number + 1}, {rank}, {name}: "
                    return Problem(_round_mistake(local, number, found), place + expected, shown)
    return None


def _gathered(ranks: Ranks) -> Problem | None:
    """Find weights that are gathered: each rank gives as much as to an all-reduce, and gets that of all."""
    for rank, outcome in ranks if len(ranks) > 1 else ():
        for call in outcome.calls:
            if "gather" in call.op:
                return Problem(mistakes.MORE_THAN_THE_WEIGHTS, f"{rank}: all-reduces only", named(call))
    return None


def _round_mistake(local: LocalSgd, number: int, found: list[Named]) -> Mistake:
    for mistake, combine, clear in _ROUND_MISTAKES:
        made = list(local.simulate(combine, clear))[number]
        if all(map(_alike, found, made)):
            return mistake
    return mistakes.WRONG_WEIGHTS_AFTER_A_ROUND


def _heavy_rounds(local: LocalSgd) -> Limit:
    budget = ROUNDS * local.nbytes
    expected = f"at most {budget:,} bytes in {ROUNDS} rounds: the trained weights, once a round"
    return budget, mistakes.MORE_THAN_THE_WEIGHTS, expected


def _too_much(
    outcomes: Sequence[Outcome | None], budget: int, mistake: Mistake, expected: str
) -> Problem | None:
    """Find a rank that gave more bytes to its calls; alone, it may."""
    ranks = [(rank, outcome.calls) for rank, outcome in enumerate(outcomes) if outcome is not None]
    for rank, calls in ranks if len(ranks) > 1 else ():
        if (nbytes := given(rank, calls)) > budget:
            return Problem(mistake, expected, f"{nbytes:,} bytes on rank {rank}")
    return None


# --- TopKCompressor


_COMPRESSION_MISTAKES: dict[Mistake, dict[str, Any]] = {
    mistakes.NO_ERROR_FEEDBACK: {"keeps": "nothing"},
    mistakes.SENT_AND_KEPT: {"keeps": "everything"},
    mistakes.SUMMED_GRADIENTS: {"averages": False},
    mistakes.LARGEST_BY_VALUE: {"by_magnitude": False},
    mistakes.COINCIDING_ELEMENTS: {"adds": False},
    mistakes.GRADIENTS_ONE_BY_ONE: {"together": False},
    mistakes.AVERAGED_OVER_SENDERS: {"over_senders": True},
    mistakes.TOO_FEW_SENT: {"rounds": math.floor},
    mistakes.NOT_COMPRESSED: {"ratio": 1.0},
}
_NUM_STEPS, _NUM_COMPRESSORS = 3, 2


@check("TopKCompressor", banned=BANNED)
def top_k_compressor(
    compressor: Code,
    world_sizes: Sequence[int] = WORLD_SIZES,
    ratios: Sequence[float] = RATIOS,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    seed: int = 0,
) -> Cases:
    """Check `TopKCompressor`: the averages of some steps, the rest that is kept for later, and the bytes.

    Args:
        compressor: your class.
        ratios: shares of the elements that are sent.
        shapes: of the gradients.
    """
    for setting in _settings(world_sizes, seed):
        for ratio in ratios if setting.members is None else ratios[:1]:
            steps = _draw_steps(len(setting.ranks), shapes, setting.draws)
            compressions = [
                Compression(ratio, [[step[which] for step in own] for own in steps])
                for which in range(_NUM_COMPRESSORS)
            ]
            budget = _NUM_STEPS * sum(each.nbytes for each in compressions)
            expected = f"at most {budget:,} bytes: the values sent and their places"
            yield _trial(
                setting,
                f"ratio {ratio:g}",
                drivers.compress,
                [(ratio, own) for own in steps],
                partial(_wrong_compression, compressions),
                (budget, mistakes.MORE_THAN_THE_LARGEST, expected),
                budget // 2,
                size=round(100 * (1 - ratio)),
            )


def _draw_steps(
    num_ranks: int, shapes: Sequence[tuple[int, ...]], draws: Draws
) -> list[list[list[Gradients]]]:
    """Draw for each rank and step the gradients for each compressor; the ranks agree in a part of them."""

    def draw() -> Gradients:
        return [draws.randn(shape) for shape in shapes]

    shared = [[draw() for _ in range(_NUM_COMPRESSORS)] for _ in range(_NUM_STEPS)]
    return [
        [[[g + own for g, own in zip(each, draw(), strict=True)] for each in step] for step in shared]
        for _ in range(num_ranks)
    ]


def _wrong_compression(compressions: Sequence[Compression], ranks: Ranks) -> Problem | None:
    if problem := not_waited_for_on_any(ranks):
        return problem
    for position, (rank, outcome) in enumerate(ranks):
        steps = [as_many(step, _NUM_COMPRESSORS) for step in as_many(outcome.value, _NUM_STEPS)]
        for which, compression in enumerate(compressions):
            found, given = [step[which] for step in steps], compression.steps[position]
            if problem := _wrong_gradients(compression, rank, given, found):
                return problem
    return None


def _wrong_gradients(
    compression: Compression, rank: str, given: Sequence[Sequence[torch.Tensor]], found: Sequence[Gradients]
) -> Problem | None:
    for number, wanted in enumerate(compression.simulate()):
        pairs = zip(wanted, as_many(found[number], len(wanted)), strict=True)
        for index, (want, got) in enumerate(pairs, 1):
            if not _equal(got, want):
                expected, shown = _differing(want, got)
                place = f"step {number + 1}, {rank}, gradient {index}: "
                untouched = same(got, given[number][index - 1])
                mistake = UNTOUCHED if untouched else _compression_mistake(compression, number, found)
                return Problem(mistake, place + expected, shown)
    return None


def _compression_mistake(compression: Compression, number: int, found: Sequence[Gradients]) -> Mistake:
    for mistake, changes in _COMPRESSION_MISTAKES.items():
        made = list(dataclasses.replace(compression, **changes).simulate())[number]
        if all(map(_equal, found[number], made)):
            return mistake
    return mistakes.WRONG_COMPRESSED_GRADIENTS


# --- both


def _alike(found: Named, wanted: Named) -> bool:
    return all(_equal(found[name], want) for name, want in wanted.items())


def _equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    return close(got, want, TOLERANCE[want.dtype])


def _differing(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    if kind_of(want) != kind_of(got):
        return kind_of(want), kind_of(got)
    return difference_beyond(TOLERANCE[want.dtype], want, got)
