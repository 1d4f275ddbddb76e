"""Checks of exercise 00: a mean and a maximum of all ranks, on every rank."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from autograder.inside.drivers.calls import call_again, call_and_change, call_twice
from autograder.kit.case import Case
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import (
    FROM_AN_EARLIER_CALL,
    MODIFIED,
    NOT_A_NUMBER,
    OVERWRITTEN,
    WRONG_TYPE,
    Mistake,
)
from autograder.kit.problem import Problem, first
from autograder.kit.received import not_waited_for_on_any
from autograder.kit.settings import taking_part
from autograder.kit.student import Outcome
from autograder.kit.values import close, difference_beyond, dtype_name, kind_of, same
from autograder.topics.hello import mistakes
from fourranks.naming import counted

WORLD_SIZES = (1, 2, 3, 4)
NUMELS = (1, 6, 1000)
MATRIX = (4, 3)  # the shape of one case; all others have one dimension
LARGEST = 40  # a summand: small cases can be followed by hand
TOLERANCE = 1e-6  # relative: a mean of float32 is rounded once or twice

_HOW_CALLED = {
    call_twice: ", called twice",
    call_again: ", called twice",
    call_and_change: ", changed afterwards",
}

OnRanks = Sequence[tuple[int, Outcome]]  # ranks, and what the call left behind on each


class _OfAllRanks(Case):
    """One call on all ranks, of which each returns the same."""

    patterns: ClassVar = mistakes.PATTERNS
    out_of_step: ClassVar = (mistakes.OUT_OF_STEP, "a call of every rank, and an answer from each")

    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        by_rank = [(rank, outcome) for rank, outcome in enumerate(outcomes) if outcome is not None]
        problem = self._on_any(by_rank)
        if problem and (unwaited := not_waited_for_on_any(taking_part(outcomes))):
            return unwaited  # a reader who asks is_completed() instead gets it right
        if problem and _only_one_rank_gets(by_rank):
            return replace(problem, mistake=mistakes.ON_ONE_RANK_ONLY)
        if problem or self.driver:  # which may call it more than once
            return problem
        return first(_too_many_calls(*each) for each in by_rank)

    def _on_any(self, by_rank: OnRanks) -> Problem | None:
        """Return what is wrong with what the ranks have returned."""
        return first(self._on(*each) for each in by_rank)

    @abstractmethod
    def _on(self, rank: int, outcome: Outcome) -> Problem | None:
        """Return what is wrong with what a rank has returned."""

    @property
    def weight(self) -> tuple[int, int]:
        return 1, self.world_size

    @property
    def _ranks(self) -> str:
        return counted(self.world_size, "rank")

    @property
    def _how(self) -> str:
        return _HOW_CALLED[self.driver] if self.driver else ""


def _only_one_rank_gets(by_rank: OnRanks) -> bool:
    """Tell whether all calls that move data leave the result on one rank."""
    ops = {call.op for _, outcome in by_rank for call in outcome.calls if call.moves_data}
    return bool(ops) and ops <= {"reduce", "gather"}


def _too_many_calls(rank: int, outcome: Outcome) -> Problem | None:
    calls = [call for call in outcome.calls if call.moves_data]
    if len(calls) <= 1:
        return None
    got = f"{len(calls)}, the second one a call of {calls[1].op} in line {calls[1].line}"
    return Problem(mistakes.SEVERAL_CALLS, f"one collective call on rank {rank}", got)


@dataclass(frozen=True, kw_only=True)
class _Mean(_OfAllRanks):
    """A call of `average`."""

    mean: torch.Tensor

    def _on_any(self, by_rank: OnRanks) -> Problem | None:
        problem = super()._on_any(by_rank)
        own = [given[0] for given in self.inputs if given]
        if problem and self.world_size > 1 and same([outcome.value for _, outcome in by_rank], own):
            return replace(problem, mistake=mistakes.OWN_TENSOR)
        return problem

    def __str__(self) -> str:
        shape = " × ".join(f"{size:,}" for size in self.mean.shape)
        return f"{self._ranks}, {shape} × {dtype_name(self.mean.dtype)}{self._how}"

    def _on(self, rank: int, outcome: Outcome) -> Problem | None:
        where, got = f"on rank {rank}", outcome.value
        (before,) = self.inputs[rank] or ()
        if not isinstance(got, torch.Tensor):
            return Problem(WRONG_TYPE, f"{kind_of(self.mean)} {where}", kind_of(got))
        if kind_of(got) != kind_of(self.mean):
            return Problem(mistakes.WRONG_FORM, f"{kind_of(self.mean)} {where}", kind_of(got))
        if not close(got, self.mean, TOLERANCE):
            want, found = difference_beyond(TOLERANCE, self.mean, got)
            return Problem(self._reason(got), f"{want} {where}", found)
        if not same(outcome.arguments[0], before):
            return Problem(MODIFIED, f"`tensor` {where} as it was", "another one")
        return None

    def _reason(self, got: torch.Tensor) -> Mistake:
        """Return the mistake that gives this in place of the mean."""
        of_calls = {
            call_twice: OVERWRITTEN,
            call_again: FROM_AN_EARLIER_CALL,
            call_and_change: mistakes.THE_ARGUMENT_ITSELF,
        }
        known = {of_calls[self.driver]: -self.mean} if self.driver else {}
        known |= {
            mistakes.SUMMED: self.mean * self.world_size,
            mistakes.DIVIDED_TWICE: self.mean / self.world_size,
            mistakes.DIVIDED_BY_FOUR: self.mean * self.world_size / 4,
        }
        otherwise = FROM_AN_EARLIER_CALL if self.driver is call_again else mistakes.WRONG_MEAN
        return next((why for why, value in known.items() if close(got, value, TOLERANCE)), otherwise)


@dataclass(frozen=True, kw_only=True)
class _Largest(_OfAllRanks):
    """A call of `largest`, with one number on each rank."""

    numbers: Sequence[float]

    def __str__(self) -> str:
        signs = "all negative" if max(self.numbers) < 0 else "numbers of either sign"
        return f"{self._ranks}, {signs}{self._how}"

    def _on_any(self, by_rank: OnRanks) -> Problem | None:
        returned = [outcome.value for _, outcome in by_rank]
        if self.world_size > 1 and same(returned, list(self.numbers)):
            return Problem(mistakes.OWN_NUMBER, "the same number on every rank", "each rank's own one")
        return super()._on_any(by_rank)

    def _on(self, rank: int, outcome: Outcome) -> Problem | None:
        want, got = max(self.numbers), outcome.value
        if not isinstance(got, float):
            return Problem(NOT_A_NUMBER, f"a float on rank {rank}", kind_of(got))
        if got == want:
            return None
        return Problem(self._reason(got), f"{want!r} on rank {rank}", repr(got))

    def _reason(self, got: float) -> Mistake:
        """Return the mistake that gives this in place of the largest number."""
        known = {FROM_AN_EARLIER_CALL: -min(self.numbers)} if self.driver else {}
        known |= {
            mistakes.LOST_DIGITS: max(self.numbers),
            mistakes.NEVER_BELOW_ZERO: max(0.0, *self.numbers),
            mistakes.ADDED_UP: sum(self.numbers),
            mistakes.SMALLEST: min(self.numbers),
        }
        near = (why for why, value in known.items() if math.isclose(got, value, rel_tol=TOLERANCE))
        return next(near, mistakes.WRONG_NUMBER)


@check()
def average(
    function: Code,
    world_sizes: Sequence[int] = WORLD_SIZES,
    numels: Sequence[int] = NUMELS,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64),
    seed: int = 0,
) -> Cases:
    """Check `average`: the mean of all ranks' tensors, returned on every rank, in a tensor of its own."""
    draws = Draws(seed)
    for world_size in world_sizes:
        for turn, numel in enumerate(numels):
            dtype = dtypes[(turn + world_size) % len(dtypes)]
            yield _mean(draws, world_size, (numel,), dtype)
    yield _mean(draws, max(world_sizes), (max(numels),), dtypes[0], driver=call_twice)
    yield _mean(draws, max(world_sizes), MATRIX, dtypes[0], driver=call_again)
    yield _mean(draws, min(world_sizes), (max(numels),), dtypes[0], driver=call_and_change)


def _mean(draws: Draws, world_size: int, shape: tuple[int, ...], dtype: torch.dtype, **fields: Any) -> _Mean:
    tensors = draws.randint(-LARGEST, LARGEST + 1, (world_size, *shape), dtype)
    nbytes = tensors[0].nbytes if world_size > 1 else 0
    return _Mean(
        inputs=[(tensor,) for tensor in tensors],
        mean=tensors.double().mean(dim=0).to(dtype),
        received=(nbytes,) * world_size if nbytes else (),
        **fields,
    )


@check()
def largest(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `largest`: the largest of all ranks' numbers, returned on every rank."""
    draws = Draws(seed)
    for world_size in world_sizes:
        for low, high in ((-1.0, 1.0), (-2.0, -1.0)):
            yield _largest(draws, world_size, low, high)
    yield _largest(draws, max(world_sizes), -2.0, -1.0, driver=call_again)


def _largest(draws: Draws, world_size: int, low: float, high: float, **fields: Any) -> _Largest:
    drawn = draws.rand((world_size,), torch.float64).mul_(high - low).add_(low)
    numbers = [float(number) for number in drawn]
    return _Largest(
        inputs=[(number,) for number in numbers],
        numbers=numbers,
        received=(torch.float64.itemsize,) * world_size if world_size > 1 else (),
        backends=("gloo",),  # an answer makes its tensor in the processor's memory, as the hint does
        **fields,
    )
