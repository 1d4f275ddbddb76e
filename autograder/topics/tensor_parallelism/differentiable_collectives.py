"""Checks of exercise 06's four functions that take activations to ranks and back, and their gradients too.

Inputs and gradients are whole numbers, other ones on every rank, so that sums are exact in any order and
dtype, and show what was added up and what was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from autograder.inside.drivers import tensor_parallelism as drivers
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import MODIFIED, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.student import Function, Outcome
from autograder.topics.tensor_parallelism.activation_traffic import (
    Collective,
    Traffic,
    excess,
    least_received,
)
from autograder.topics.tensor_parallelism.banned import BANNED
from autograder.topics.tensor_parallelism.mistakes import (
    AVERAGED,
    CUT_GRAPH,
    GRADIENT_OVERWRITTEN,
    INDIVISIBLE_ACCEPTED,
    NOT_GATHERED_IN_BACKWARD,
    NOT_SUMMED_IN_BACKWARD,
    NOT_SUMMED_IN_FORWARD,
    PART_OF_ANOTHER_RANK,
    PARTS_IN_ANOTHER_ORDER,
    SCALED_NEEDLESSLY,
    SUMMED_NEEDLESSLY,
    VAGUE_REFUSAL,
    WRONG_BACKWARD,
    WRONG_FORWARD,
)
from autograder.topics.tensor_parallelism.shards import Cut, Tensors
from autograder.topics.tensor_parallelism.trials import by_rank, names, trial

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
LARGEST = 8  # of the numbers drawn, so that bfloat16 is exact for the sum over 8 ranks

Tensor = torch.Tensor
Mistakes = dict[Mistake, Sequence[Tensor]]


@dataclass(frozen=True)
class Shape:
    """What a trial gives to the function.

    Attributes:
        whole: the shape of the tensor that all ranks share, or put together.
        dim: along which it is cut, as the caller says it.
        strided: whether on every other rank its elements lie in memory in another order.
    """

    whole: tuple[int, ...]
    dim: int | None = None
    dtype: torch.dtype = torch.float64
    strided: bool = False

    @property
    def traits(self) -> tuple[str, ...]:
        other_dim = self.dim is not None and self.dim % len(self.whole) < len(self.whole) - 1
        named = {"strided": self.strided, "other dim": other_dim, "empty": 0 in self.whole}
        return tuple(name for name, applies in named.items() if applies)

    def __str__(self) -> str:
        cut = "" if self.dim is None else f", dim {self.dim}"
        memory = ", on some ranks not contiguous" if self.strided else ""
        return f"{str(self.dtype).removeprefix('torch.')} of shape {self.whole}{cut}{memory}"


@dataclass(frozen=True)
class Expected:
    """What a function and its backward must give on each rank, the usual mistakes, and what they may send."""

    output: Sequence[Tensor]
    gradient: Sequence[Tensor]
    output_mistakes: Mistakes
    gradient_mistakes: Mistakes
    traffic: Traffic


def copy_to_ranks(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `copy_to_ranks`: the same forward, the sum over the ranks backward.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("copy_to_ranks", function, _alike(world_sizes, seed, _copied), seed, BANNED)


def reduce_from_ranks(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `reduce_from_ranks`: the sum over the ranks forward, the same backward.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("reduce_from_ranks", function, _alike(world_sizes, seed, _reduced), seed, BANNED)


def gather_from_ranks(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `gather_from_ranks`: all parts forward, this rank's part backward.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("gather_from_ranks", function, _gathering(world_sizes, seed), seed, BANNED)


def scatter_to_ranks(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `scatter_to_ranks`: this rank's part forward, all parts backward, and what does not divide.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("scatter_to_ranks", function, _scattering(world_sizes, seed), seed, BANNED)


# --- cases


def _alike(world_sizes: Sequence[int], seed: int, expect: Callable) -> Iterator[Trial]:
    """The tensors of all ranks have one shape, and so has what comes out."""
    for setting in settings(world_sizes, seed):
        for shape in (
            Shape((3, 4)),
            Shape((2, 3, 5), dtype=DTYPES[setting.world_size % 3], strided=True),
            Shape((0, 4)),
        ):
            x, gradient = _draw(setting, shape, shape.whole), _draw(setting, shape, shape.whole)
            yield _trial(setting, shape, x, gradient, expect(x, gradient))


def _gathering(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting, shape in _cut_shapes(world_sizes, seed):
        num_ranks = len(setting.ranks)
        x, gradient = _draw(setting, shape, _part(shape, num_ranks)), _draw(setting, shape, shape.whole)
        yield _trial(setting, shape, x, gradient, _gathered(x, gradient, shape.dim))


def _scattering(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    for setting, shape in _cut_shapes(world_sizes, seed):
        num_ranks = len(setting.ranks)
        x, gradient = _draw(setting, shape, shape.whole), _draw(setting, shape, _part(shape, num_ranks))
        yield _trial(setting, shape, x, gradient, _scattered(x, gradient, shape.dim))
    for setting in settings(world_sizes, seed):
        if len(setting.ranks) > 1:
            yield refusal(setting, [torch.zeros(2, len(setting.ranks) + 1), -1], {}, len(setting.ranks) + 1)


def _cut_shapes(world_sizes: Sequence[int], seed: int) -> Iterator[tuple[Setting, Shape]]:
    for setting in settings(world_sizes, seed):
        n = len(setting.ranks)
        yield setting, Shape((3, 2 * n), dim=-1)
        yield setting, Shape((n, 3), dim=0)
        yield setting, Shape((2, 3 * n, 5), dim=1, dtype=DTYPES[setting.world_size % 3], strided=True)
        yield setting, Shape((2, 0), dim=1)


def _part(shape: Shape, num_ranks: int) -> tuple[int, ...]:
    part = list(shape.whole)
    part[shape.dim] //= num_ranks
    return tuple(part)


def _draw(setting: Setting, shape: Shape, size: tuple[int, ...]) -> list[Tensor]:
    """Whole numbers for each rank."""
    return [setting.draws.randint(-LARGEST, LARGEST + 1, size, shape.dtype) for _ in setting.ranks]


def _trial(
    setting: Setting, shape: Shape, x: list[Tensor], gradient: list[Tensor], expected: Expected
) -> Trial:
    arguments = [] if shape.dim is None else [shape.dim]
    return trial(
        setting,
        str(shape),
        drivers.differentiate,
        lambda at: (x[at], arguments, gradient[at], shape.strided and at % 2 == 0),
        partial(_examine, expected, x, gradient),
        shape.traits,
        least_received(expected.traffic, len(setting.ranks)),
    )


def refusal(setting: Setting, arguments: list, options: dict, *numbers: int) -> Trial:
    """A call with sizes that do not divide: a ValueError with these numbers and the number of ranks."""
    num_ranks = len(setting.ranks)

    def verify(outcomes: Sequence[tuple[str, Outcome]]) -> Problem | None:
        rank, outcome = outcomes[0]
        if not outcome.value:
            return Problem(INDIVISIBLE_ACCEPTED, f"{rank}: a ValueError", "none")
        missing = [each for each in (*numbers, num_ranks) if str(each) not in outcome.value]
        if missing:
            expected = f"{rank}: a message that names {' and '.join(map(str, (*numbers, num_ranks)))}"
            return Problem(VAGUE_REFUSAL, expected, outcome.value)
        return None

    what = f"{' and '.join(map(str, numbers))} cannot be shared by {num_ranks} ranks"
    return trial(setting, what, drivers.refuse, lambda at: (arguments, options), verify, ("refusal",))


# --- what has to come out


def _copied(x: list[Tensor], gradient: list[Tensor]) -> Expected:
    total = _same_for_all(sum(gradient), len(x))
    return Expected(
        output=x,
        gradient=total,
        output_mistakes={SUMMED_NEEDLESSLY: _same_for_all(sum(x), len(x))},
        gradient_mistakes={
            NOT_SUMMED_IN_BACKWARD: gradient,
            AVERAGED: _same_for_all(sum(gradient) / len(x), len(x)),
        },
        traffic=Traffic(backward=(Collective("all_reduce", gradient[0].nbytes),)),
    )


def _reduced(x: list[Tensor], gradient: list[Tensor]) -> Expected:
    n = len(x)
    return Expected(
        output=_same_for_all(sum(x), n),
        gradient=gradient,
        output_mistakes={NOT_SUMMED_IN_FORWARD: x, AVERAGED: _same_for_all(sum(x) / n, n)},
        gradient_mistakes={
            SUMMED_NEEDLESSLY: _same_for_all(sum(gradient), n),
            SCALED_NEEDLESSLY: [each * n for each in gradient],
        },
        traffic=Traffic(forward=(Collective("all_reduce", x[0].nbytes),)),
    )


def _gathered(x: list[Tensor], gradient: list[Tensor], dim: int) -> Expected:
    n, cut = len(x), Cut(dim)
    whole = torch.cat(x, dim)
    return Expected(
        output=_same_for_all(whole, n),
        gradient=[cut.parts(each, n)[at] for at, each in enumerate(gradient)],
        output_mistakes={PARTS_IN_ANOTHER_ORDER: _same_for_all(torch.cat(x[::-1], dim), n)},
        gradient_mistakes={
            SUMMED_NEEDLESSLY: cut.parts(sum(gradient), n),
            PART_OF_ANOTHER_RANK: [cut.parts(each, n)[0] for each in gradient],
        },
        traffic=Traffic(forward=(Collective("all_gather", whole.nbytes),)),
    )


def _scattered(x: list[Tensor], gradient: list[Tensor], dim: int) -> Expected:
    n, cut = len(x), Cut(dim)
    whole = torch.cat(gradient, dim)
    alone = [
        torch.cat(
            [torch.zeros_like(part) if other != at else part for other, part in enumerate(gradient)], dim
        )
        for at in range(n)
    ]
    return Expected(
        output=[cut.parts(each, n)[at] for at, each in enumerate(x)],
        gradient=_same_for_all(whole, n),
        output_mistakes={
            PART_OF_ANOTHER_RANK: [cut.parts(each, n)[0] for each in x],
            SUMMED_NEEDLESSLY: cut.parts(sum(x), n),
        },
        gradient_mistakes={
            NOT_GATHERED_IN_BACKWARD: alone,
            PARTS_IN_ANOTHER_ORDER: _same_for_all(torch.cat(gradient[::-1], dim), n),
        },
        traffic=Traffic(backward=(Collective("all_gather", whole.nbytes),)),
    )


def _same_for_all(tensor: Tensor, num_ranks: int) -> list[Tensor]:
    return [tensor] * num_ranks


# --- what is wrong


def _examine(
    expected: Expected, x: list[Tensor], gradient: list[Tensor], outcomes: Sequence[tuple[str, Outcome]]
) -> Problem | None:
    ranks = names(outcomes)
    forward = (
        (x, "input", "the input after the call", MODIFIED, {}),
        (expected.output, "output", "output", WRONG_FORWARD, expected.output_mistakes),
    )
    if problem := first(_compare(outcomes, *each) for each in forward):
        return problem
    for rank, outcome in outcomes:
        if not outcome.value["differentiable"]:
            return Problem(CUT_GRAPH, f"{rank}: an output with a grad_fn", "one without")
    compared = (
        (
            expected.gradient,
            "gradient",
            "gradient of the input",
            WRONG_BACKWARD,
            expected.gradient_mistakes,
        ),
        (gradient, "neighbour", "gradient of something else that was added", GRADIENT_OVERWRITTEN, {}),
    )
    problem = first(_compare(outcomes, *each) for each in compared)
    return problem or first(excess(expected.traffic, outcome, len(ranks), rank) for rank, outcome in outcomes)


def _compare(
    outcomes: Sequence[tuple[str, Outcome]],
    wanted: Sequence[Tensor],
    key: str,
    name: str,
    otherwise: Mistake,
    mistakes: Mistakes,
) -> Problem | None:
    tensors = Tensors(name, wanted, otherwise, tuple(mistakes.items()), tolerance=0.0)
    return tensors.wrong(by_rank(outcomes, key), names(outcomes))
