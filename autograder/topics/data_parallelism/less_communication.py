"""Checks of exercise 04's ways to communicate less: local steps, and compressed gradients.

What the ranks must end up with is computed here by a simulation of all ranks. When it is something else, the
simulation is run with the usual mistakes, to say which one was made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch

from autograder.inside.drivers import less_communication as drivers
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.stretches import stretches
from autograder.kit.student import Function, Outcome
from autograder.kit.values import close, difference_beyond, kind_of, same
from autograder.topics.collectives.mistakes import PATTERNS, UNTOUCHED
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.less_communication_mistakes import (
    COINCIDING_ELEMENTS,
    COMMUNICATION_BETWEEN_LOCAL_STEPS,
    GRADIENTS_ADD_UP,
    GRADIENTS_ONE_BY_ONE,
    LARGEST_BY_VALUE,
    MORE_THAN_THE_LARGEST,
    MORE_THAN_THE_WEIGHTS,
    NO_ERROR_FEEDBACK,
    NOT_AVERAGED,
    NOT_COMPRESSED,
    SENT_AND_KEPT,
    SUMMED_GRADIENTS,
    SUMMED_WEIGHTS,
    WEIGHTS_OF_ONE_RANK,
    WRONG_COMPRESSED_GRADIENTS,
    WRONG_WEIGHTS_AFTER_A_ROUND,
)
from autograder.topics.data_parallelism.simulations import Compression, LocalSgd, mean
from fourranks.trace import Call

WORLD_SIZES = (1, 2, 3, 4, 5)
RATIOS = (0.1, 0.3, 1.0)
SHAPES = ((7,), (5, 3), (1,), (0,), (2, 3, 4))
ROUNDS = 3
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}  # sums over the ranks may come in any order

Outcomes = Sequence[Outcome | None]


def local_sgd_round(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `local_sgd_round`: the weights after some rounds, and that only their average is communicated.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("local_sgd_round", function, _rounds(world_sizes, seed), seed, BANNED)


def top_k_compressor(
    compressor: type | Function,
    world_sizes: Sequence[int] = WORLD_SIZES,
    ratios: Sequence[float] = RATIOS,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    seed: int = 0,
) -> None:
    """Checks `TopKCompressor`: the averages of some steps, what is kept for later, and the bytes.

    Args:
        ratios: shares of the elements that are sent.
        shapes: of the gradients.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("TopKCompressor", compressor, _compressions(world_sizes, ratios, shapes, seed), seed, BANNED)


class _Trial(Trial):
    """A trial that may be the only one of a group that is not the default one."""

    patterns: ClassVar = PATTERNS[:1]


def _worlds(world_sizes: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """Every world, and then a group in the largest one, without rank 0."""
    yield from ((world_size, None) for world_size in world_sizes)
    if max(world_sizes) >= 3:
        yield max(world_sizes), tuple(range(1, max(world_sizes)))


def _received(world_size: int, ranks: tuple[int, ...], nbytes: int) -> list[int]:
    """So many bytes for each rank that takes part, if there are others."""
    return [nbytes if rank in ranks and len(ranks) > 1 else 0 for rank in range(world_size)]


def _title(world_size: int, members: tuple[int, ...] | None, what: str) -> str:
    ranks = f"{world_size} rank{'s' if world_size > 1 else ''}"
    group = f", group of {', '.join(map(str, members))}" if members else ""
    return f"{ranks}{group}, {what}"


# --- local_sgd_round


# The usual mistakes: how the values of all ranks are combined, and when gradients are cleared.
_ROUND_MISTAKES: Sequence[tuple[Mistake, Callable, str]] = (
    (NOT_AVERAGED, lambda values, rank: values[rank], "before"),
    (SUMMED_WEIGHTS, lambda values, rank: torch.stack(values).sum(0), "before"),
    (WEIGHTS_OF_ONE_RANK, lambda values, rank: values[0], "before"),
    (GRADIENTS_ADD_UP, mean, "never"),
    (GRADIENTS_ADD_UP, mean, "after"),
)


def _rounds(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    draws = Draws(seed)
    for world_size, members in _worlds(world_sizes):
        ranks = members or tuple(range(world_size))
        local = _draw_rounds(len(ranks), ("SGD", "AdamW")[world_size % 2], draws)
        inputs = [(local.state, local.kind, rounds) for rounds in local.rounds]
        yield _Trial(
            title=_title(world_size, members, f"{local.kind}, {ROUNDS} rounds"),
            inputs=[inputs[ranks.index(r)] if r in ranks else None for r in range(world_size)],
            members=members,
            driver=drivers.local_sgd,
            size=2 if len(ranks) == 2 else 1,  # where all take as many steps, more can be told
            verify=lambda outcomes, local=local, ranks=ranks: _wrong_round(local, ranks, outcomes),
            received=_received(world_size, ranks, ROUNDS * local.nbytes),
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


def _wrong_round(local: LocalSgd, ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    own = [outcomes[rank] for rank in ranks]
    return _talked_early(ranks, own) or _wrong_weights(local, ranks, own) or _heavy_rounds(local, ranks, own)


def _talked_early(ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    for rank, outcome in zip(ranks, outcomes, strict=True):
        for number, part in enumerate(stretches(outcome, "began", ROUNDS), 1):
            last = max(part.all("loss"), default=0.0)
            for call in part.calls:
                if call.start < last:
                    got = f"rank {rank} calls {call.op} in line {call.line} before its last step"
                    return Problem(
                        COMMUNICATION_BETWEEN_LOCAL_STEPS, f"round {number}: local steps only", got
                    )
    return None


def _wrong_weights(local: LocalSgd, ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    for number, wanted in enumerate(local.simulate(mean)):
        found = [outcome.value[number]["weights"] for outcome in outcomes]
        if all(map(_alike, found, wanted)):
            continue
        rank = next(rank for rank in range(len(found)) if not _alike(found[rank], wanted[rank]))
        name = next(name for name, want in wanted[rank].items() if not _equal(found[rank][name], want))
        expected, got = _differing(wanted[rank][name], found[rank][name])
        place = f"round {number + 1}, rank {ranks[rank]}, {name}: "
        return Problem(_round_mistake(local, number, found), place + expected, got)
    return None


def _round_mistake(local: LocalSgd, number: int, found: list[dict]) -> Mistake:
    for mistake, *way in _ROUND_MISTAKES:
        made = list(local.simulate(*way))[number]
        if all(map(_alike, found, made)):
            return mistake
    return WRONG_WEIGHTS_AFTER_A_ROUND


def _heavy_rounds(local: LocalSgd, ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    if len(ranks) == 1:
        return None
    for rank, outcome in zip(ranks, outcomes, strict=True):
        nbytes, budget = _nbytes(outcome.calls), ROUNDS * local.nbytes
        if nbytes > budget:
            expected = f"at most {budget:,} bytes in {ROUNDS} rounds: the trained weights, once a round"
            return Problem(MORE_THAN_THE_WEIGHTS, expected, f"{nbytes:,} bytes on rank {rank}")
    return None


# --- TopKCompressor


_COMPRESSION_MISTAKES: dict[Mistake, dict[str, object]] = {
    NO_ERROR_FEEDBACK: {"keeps": "nothing"},
    SENT_AND_KEPT: {"keeps": "everything"},
    SUMMED_GRADIENTS: {"averages": False},
    LARGEST_BY_VALUE: {"by_magnitude": False},
    COINCIDING_ELEMENTS: {"adds": False},
    GRADIENTS_ONE_BY_ONE: {"together": False},
    NOT_COMPRESSED: {"ratio": 1.0},
}
_NUM_STEPS, _NUM_COMPRESSORS = 3, 2


def _compressions(
    world_sizes: Sequence[int], ratios: Sequence[float], shapes: Sequence[tuple[int, ...]], seed: int
) -> Iterator[Trial]:
    draws = Draws(seed)
    for world_size, members in _worlds(world_sizes):
        ranks = members or tuple(range(world_size))
        for ratio in ratios if members is None else ratios[:1]:
            steps = _draw_steps(len(ranks), shapes, draws)
            inputs = [(ratio, own) for own in steps]
            compressions = [
                Compression(ratio, [[step[which] for step in own] for own in steps])
                for which in range(_NUM_COMPRESSORS)
            ]
            yield _Trial(
                title=_title(world_size, members, f"ratio {ratio:g}"),
                inputs=[inputs[ranks.index(r)] if r in ranks else None for r in range(world_size)],
                members=members,
                driver=drivers.compress,
                verify=lambda outcomes, c=compressions, ranks=ranks: _wrong_compression(c, ranks, outcomes),
                received=_received(
                    world_size, ranks, _NUM_STEPS * sum(each.nbytes for each in compressions) // 2
                ),
                size=round(100 * (1 - ratio)),
            )


def _draw_steps(num_ranks: int, shapes: Sequence[tuple[int, ...]], draws: Draws) -> list:
    """For each rank and step the gradients for each compressor; the ranks agree in a part of them."""

    def draw() -> list[torch.Tensor]:
        return [draws.randn(shape) for shape in shapes]

    shared = [[draw() for _ in range(_NUM_COMPRESSORS)] for _ in range(_NUM_STEPS)]
    return [
        [[[g + own for g, own in zip(each, draw(), strict=True)] for each in step] for step in shared]
        for _ in range(num_ranks)
    ]


def _wrong_compression(
    compressions: Sequence[Compression], ranks: Sequence[int], outcomes: Outcomes
) -> Problem | None:
    for rank in ranks:
        for which, compression in enumerate(compressions):
            found = [step[which] for step in outcomes[rank].value]
            given = compression.steps[ranks.index(rank)]
            if problem := _wrong_gradients(compression, rank, given, found):
                return problem
    if len(ranks) == 1:
        return None
    budget = _NUM_STEPS * sum(compression.nbytes for compression in compressions)
    for rank in ranks:
        nbytes = _nbytes(outcomes[rank].calls)
        if nbytes > budget:
            expected = f"at most {budget:,} bytes: the values sent and their places"
            return Problem(MORE_THAN_THE_LARGEST, expected, f"{nbytes:,} bytes on rank {rank}")
    return None


def _wrong_gradients(
    compression: Compression,
    rank: int,
    given: Sequence[Sequence[torch.Tensor]],
    found: Sequence[Sequence[torch.Tensor]],
) -> Problem | None:
    for number, wanted in enumerate(compression.simulate()):
        for index, (want, got) in enumerate(zip(wanted, found[number], strict=True)):
            if not _equal(got, want):
                expected, shown = _differing(want, got)
                place = f"step {number + 1}, rank {rank}, gradient {index + 1}: "
                untouched = all(map(same, found[number], given[number]))
                mistake = UNTOUCHED if untouched else _compression_mistake(compression, number, found)
                return Problem(mistake, place + expected, shown)
    return None


def _compression_mistake(
    compression: Compression, number: int, found: Sequence[Sequence[torch.Tensor]]
) -> Mistake:
    for mistake, changes in _COMPRESSION_MISTAKES.items():
        made = list(dataclasses.replace(compression, **changes).simulate())[number]
        if all(map(_equal, found[number], made)):
            return mistake
    return WRONG_COMPRESSED_GRADIENTS


# --- both


def _alike(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return all(_equal(found[name], want) for name, want in wanted.items())


def _equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    return close(got, want, TOLERANCE[want.dtype])


def _differing(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    if kind_of(want) != kind_of(got):
        return kind_of(want), kind_of(got)
    return difference_beyond(TOLERANCE[want.dtype], want, got)


def _nbytes(calls: Sequence[Call]) -> int:
    """Bytes that a rank gave to its calls."""
    return sum(call.nbytes for call in calls if call.op != "recv")
