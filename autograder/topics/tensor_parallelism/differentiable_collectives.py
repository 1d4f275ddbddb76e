"""Checks of exercise 06's four functions that take activations to ranks and back, and their gradients too.

Inputs and gradients are whole numbers, other ones on every rank, so that sums are exact in any order and
dtype, and show what was added up and what was not. Some are fractions: their sum is rounded, and must be
rounded in the same way on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from autograder.inside.drivers import tensor_parallelism as drivers
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import MODIFIED, WRONG_TYPE, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.values import apart, dtype_name, has_number, same
from autograder.topics.tensor_parallelism import mistakes
from autograder.topics.tensor_parallelism.banned import BANNED
from autograder.topics.tensor_parallelism.shards import Cut, Tensors
from autograder.topics.tensor_parallelism.traffic import (
    AllowedCollective,
    AllowedTraffic,
    excess,
    least_received,
)
from autograder.topics.tensor_parallelism.trials import Outcomes, ShardedTrial, names, together

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
ROUNDING = 1e-12  # of sums of fractions in float64, in any order
# Of the numbers drawn: exact for the sum over 8 ranks, and not in a dtype with fewer digits.
LARGEST = {torch.float64: 2**40, torch.float32: 2**20, torch.bfloat16: 8}

Tensor = torch.Tensor
Mistakes = dict[Mistake, Sequence[Tensor]]


@dataclass(frozen=True)
class Shape:
    """The inputs of a trial.

    Attributes:
        whole: the shape of the tensor that all ranks share, or put together.
        dim: along which it is cut, as the caller says it.
        strided: whether on every other rank its elements lie in memory in another order.
        fractions: whether its numbers are fractions, of different sizes, and sums of them rounded.
    """

    whole: tuple[int, ...]
    dim: int | None = None
    dtype: torch.dtype = torch.float64
    strided: bool = False
    fractions: bool = False

    @property
    def traits(self) -> tuple[str, ...]:
        other_dim = self.dim is not None and self.dim % len(self.whole) < len(self.whole) - 1
        named = {
            "strided": self.strided,
            "other dim": other_dim,
            "empty": 0 in self.whole,
            "no dimensions": not self.whole,
        }
        return tuple(name for name, applies in named.items() if applies)

    def __str__(self) -> str:
        cut = "" if self.dim is None else f", dim {self.dim}"
        memory = ", on some ranks not contiguous" if self.strided else ""
        numbers = ", fractions" if self.fractions else ""
        return f"{dtype_name(self.dtype)} of shape {self.whole}{cut}{memory}{numbers}"


@dataclass(frozen=True)
class ExpectedResults:
    """Right results of a function and its backward on each rank, usual mistakes, and allowed traffic."""

    output: Sequence[Tensor]
    gradient: Sequence[Tensor]
    output_mistakes: Mistakes
    gradient_mistakes: Mistakes
    traffic: AllowedTraffic


Expect = Callable[[list[Tensor], list[Tensor]], ExpectedResults]  # by the ranks' inputs and gradients


@check(banned=BANNED)
def copy_to_ranks(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `copy_to_ranks`: the same forward, the sum over the ranks backward."""
    yield from _alike(world_sizes, seed, _copied)


@check(banned=BANNED)
def reduce_from_ranks(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `reduce_from_ranks`: the sum over the ranks forward, the same backward."""
    yield from _alike(world_sizes, seed, _reduced)


@check(banned=BANNED)
def gather_from_ranks(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `gather_from_ranks`: all parts forward, this rank's part backward."""
    for setting, dim, shape in _cut_shapes(world_sizes, seed):
        part = _part(shape, dim, len(setting.ranks))
        x, gradient = _draw(setting, shape, part), _draw(setting, shape, shape.whole)
        yield _trial(setting, shape, x, gradient, _gathered(x, gradient, dim))


@check(banned=BANNED)
def scatter_to_ranks(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `scatter_to_ranks`: this rank's part forward, all parts backward, and what does not divide."""
    for setting, dim, shape in _cut_shapes(world_sizes, seed):
        part = _part(shape, dim, len(setting.ranks))
        x, gradient = _draw(setting, shape, shape.whole), _draw(setting, shape, part)
        yield _trial(setting, shape, x, gradient, _scattered(x, gradient, dim))
    for setting in settings(world_sizes, seed):
        size = len(setting.ranks) + 1
        if size > 2:
            yield refusal(setting, [torch.zeros(2, size), -1], size)


# --- cases


def _alike(world_sizes: Sequence[int], seed: int, expect: Expect) -> Iterator[Trial]:
    """Draw tensors of one shape on all ranks, which is that of what comes out, too."""
    for setting in settings(world_sizes, seed):
        for shape in (
            Shape((3, 4)),
            Shape((2, 3, 5), dtype=DTYPES[setting.world_size % 3], strided=True),
            Shape((0, 4)),
            Shape(()),
            Shape((20, 30), fractions=True),
        ):
            x, gradient = _draw(setting, shape, shape.whole), _draw(setting, shape, shape.whole)
            yield _trial(setting, shape, x, gradient, expect(x, gradient))


def _cut_shapes(world_sizes: Sequence[int], seed: int) -> Iterator[tuple[Setting, int, Shape]]:
    """Give settings, each with a dimension along which tensors are cut, and a shape that can be."""
    for setting in settings(world_sizes, seed):
        n, dtype = len(setting.ranks), DTYPES[setting.world_size % 3]
        yield setting, -1, Shape((3, 2 * n), dim=-1)
        yield setting, -2, Shape((n, 3), dim=-2)
        yield setting, 1, Shape((2, 3 * n, 5), dim=1, dtype=dtype, strided=True)
        yield setting, 0, Shape((0, 2), dim=0)


def _part(shape: Shape, dim: int, num_ranks: int) -> tuple[int, ...]:
    part = list(shape.whole)
    part[dim] //= num_ranks
    return tuple(part)


def _draw(setting: Setting, shape: Shape, size: tuple[int, ...]) -> list[Tensor]:
    """Draw numbers for each rank."""
    if shape.fractions:  # the cube of a normal number may be tiny, or large
        return [setting.draws.randn(size, shape.dtype) ** 3 for _ in setting.ranks]
    largest = LARGEST[shape.dtype]
    return [setting.draws.randint(-largest, largest + 1, size, shape.dtype) for _ in setting.ranks]


def _trial(
    setting: Setting, shape: Shape, x: list[Tensor], gradient: list[Tensor], expected: ExpectedResults
) -> Trial:
    arguments = [] if shape.dim is None else [shape.dim]
    return setting.trial(
        str(shape),
        drivers.differentiate,
        lambda at, _: (x[at], arguments, gradient[at], shape.strided and at % 2 == 0),
        kind=ShardedTrial,
        verify=together(partial(_examine, expected, x, gradient, ROUNDING if shape.fractions else 0.0)),
        traits=shape.traits,
        received=lambda _: least_received(expected.traffic, len(setting.ranks)),
    )


def refusal(setting: Setting, arguments: list[Any], number: int) -> Trial:
    """Make a trial with a size that does not divide: a ValueError names it and the number of ranks."""
    num_ranks = len(setting.ranks)

    def verify(outcomes: Outcomes) -> Problem | None:
        rank, outcome = outcomes[0]
        message: str = outcome.value
        if not message:
            return Problem(mistakes.INDIVISIBLE_ACCEPTED, f"{rank}: a ValueError", "none")
        if all(has_number(message, each) for each in (number, num_ranks)):
            return None
        expected = f"{rank}: a message that names {number} and {num_ranks}"
        return Problem(mistakes.VAGUE_REFUSAL, expected, message)

    return setting.trial(
        f"{number} cannot be shared by {num_ranks} ranks",
        drivers.refuse,
        lambda *_: (arguments, {}),
        kind=ShardedTrial,
        verify=together(verify),
        answered=f"a ValueError that names {number} and {num_ranks}",
    )


# --- what has to come out


def _copied(x: list[Tensor], gradient: list[Tensor]) -> ExpectedResults:
    total = _same_for_all(_sum(gradient), len(x))
    return ExpectedResults(
        output=x,
        gradient=total,
        output_mistakes={mistakes.SUMMED_NEEDLESSLY: _same_for_all(_sum(x), len(x))},
        gradient_mistakes={
            mistakes.NOT_SUMMED_IN_BACKWARD: gradient,
            mistakes.AVERAGED: _same_for_all(_sum(gradient) / len(x), len(x)),
        },
        traffic=AllowedTraffic(backward=(AllowedCollective("all_reduce", gradient[0].nbytes),)),
    )


def _reduced(x: list[Tensor], gradient: list[Tensor]) -> ExpectedResults:
    n, total = len(x), _sum(x)
    return ExpectedResults(
        output=_same_for_all(total, n),
        gradient=gradient,
        output_mistakes={
            mistakes.NOT_SUMMED_IN_FORWARD: x,
            mistakes.AVERAGED: _same_for_all(total / n, n),
        },
        gradient_mistakes={
            mistakes.SUMMED_NEEDLESSLY: _same_for_all(_sum(gradient), n),
            mistakes.SCALED_NEEDLESSLY: [each * n for each in gradient],
        },
        traffic=AllowedTraffic(forward=(AllowedCollective("all_reduce", x[0].nbytes),)),
    )


def _gathered(x: list[Tensor], gradient: list[Tensor], dim: int) -> ExpectedResults:
    n, cut = len(x), Cut(dim)
    whole = torch.cat(x, dim)
    return ExpectedResults(
        output=_same_for_all(whole, n),
        gradient=[cut.parts(each, n)[at] for at, each in enumerate(gradient)],
        output_mistakes={mistakes.PARTS_IN_ANOTHER_ORDER: _same_for_all(torch.cat(x[::-1], dim), n)},
        gradient_mistakes={
            mistakes.SUMMED_NEEDLESSLY: cut.parts(_sum(gradient), n),
            mistakes.PART_OF_ANOTHER_RANK: [cut.parts(each, n)[0] for each in gradient],
        },
        traffic=AllowedTraffic(forward=(AllowedCollective("all_gather", whole.nbytes),)),
    )


def _scattered(x: list[Tensor], gradient: list[Tensor], dim: int) -> ExpectedResults:
    n, cut = len(x), Cut(dim)
    whole = torch.cat(gradient, dim)
    alone = [
        torch.cat(
            [torch.zeros_like(part) if other != at else part for other, part in enumerate(gradient)], dim
        )
        for at in range(n)
    ]
    return ExpectedResults(
        output=[cut.parts(each, n)[at] for at, each in enumerate(x)],
        gradient=_same_for_all(whole, n),
        output_mistakes={
            mistakes.PART_OF_ANOTHER_RANK: [cut.parts(each, n)[0] for each in x],
            mistakes.SUMMED_NEEDLESSLY: cut.parts(_sum(x), n),
        },
        gradient_mistakes={
            mistakes.NOT_GATHERED_IN_BACKWARD: alone,
            mistakes.PARTS_IN_ANOTHER_ORDER: _same_for_all(torch.cat(gradient[::-1], dim), n),
        },
        traffic=AllowedTraffic(backward=(AllowedCollective("all_gather", whole.nbytes),)),
    )


def _sum(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).sum(0)


def _same_for_all(tensor: Tensor, num_ranks: int) -> list[Tensor]:
    return [tensor] * num_ranks


# --- what is wrong


def _examine(
    expected: ExpectedResults, x: list[Tensor], gradient: list[Tensor], tolerance: float, outcomes: Outcomes
) -> Problem | None:
    found: list[drivers.Differentiated] = [outcome.value for _, outcome in outcomes]

    def compare(
        got: Sequence[object],
        wanted: Sequence[Tensor],
        name: str,
        otherwise: Mistake,
        known: Mistakes,
        absent: Mistake = mistakes.NO_GRADIENT_OF_A_PART,
    ) -> Problem | None:
        tensors = Tensors(name, wanted, otherwise, tuple(known.items()), tolerance, absent)
        return tensors.wrong(got, names(outcomes))

    other = "gradient of something else that was added"
    return (
        compare([own.input for own in found], x, "the input after the call", MODIFIED, {})
        or compare(
            [own.output for own in found],
            expected.output,
            "output",
            mistakes.WRONG_FORWARD,
            expected.output_mistakes,
            WRONG_TYPE,
        )
        or cut_graph(outcomes, "an output")
        or _rounded_apart(expected.output, outcomes)
        or compare(
            [own.gradient for own in found],
            expected.gradient,
            "gradient of the input",
            mistakes.WRONG_BACKWARD,
            expected.gradient_mistakes,
        )
        or compare([own.neighbour for own in found], gradient, other, mistakes.GRADIENT_OVERWRITTEN, {})
        or elsewhere([own.elsewhere for own in found], x, outcomes)
        or first(excess(expected.traffic, outcome, len(found), rank) for rank, outcome in outcomes)
    )


def _rounded_apart(wanted: Sequence[Tensor], outcomes: Outcomes) -> Problem | None:
    """Find an output that is near to what it has to be, and not the first rank's, where all have the same."""
    (first_rank, outcome), *others = outcomes
    for (rank, other), want in zip(others, wanted[1:], strict=True):
        own, got = outcome.value.output, other.value.output
        if same(want, wanted[0]) and not same(got, own):
            at = int((own != got).flatten().nonzero()[0])
            told, found = apart(own.flatten()[at].item(), got.flatten()[at].item())
            expected = f"{rank}, output, as on {first_rank}: [{at}] = {told}"
            return Problem(mistakes.ROUNDED_APART, expected, found)
    return None


def elsewhere(found: Sequence[object], x: Sequence[Tensor], outcomes: Outcomes) -> Problem | None:
    """Find an input whose gradient through another use of it is not the one that it has there, x itself."""
    tensors = Tensors("gradient of the input through another use of it", x, mistakes.GRADIENT_OF_OTHER_USES)
    return tensors.wrong(found, names(outcomes))


def cut_graph(outcomes: Outcomes, what: str) -> Problem | None:
    """Find the first rank on which what came out has no history."""
    cut = next((rank for rank, outcome in outcomes if not outcome.value.differentiable), "")
    return Problem(mistakes.CUT_GRAPH, f"{cut}: {what} with a grad_fn", "one without") if cut else None
