"""Cases of functions that move tensors by messages and leave the result in their arguments.

The subject of exercise 02: values are compared bit by bit, and traffic is held to a budget. A wrong result is
diagnosed: untouched, shifted, unfilled, a summand missing or added twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from autograder.inside import runs
from autograder.inside.drivers.calls import call_again, call_twice
from autograder.inside.runs import RunFailed
from autograder.kit.case import Case
from autograder.kit.messages import mismatched
from autograder.kit.mistakes import FROM_AN_EARLIER_CALL, MODIFIED, OVERWRITTEN, WRONG_TYPE, Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import calls_of
from autograder.kit.settings import ranks_in_words
from autograder.kit.student import Outcome
from autograder.kit.values import difference, dtype_name, kind_of, same
from autograder.topics.collectives import mistakes
from autograder.topics.collectives.budget import (
    Budget,
    forbidden,
    meet,
    sends,
    unwaited,
    violation,
)

RETURNED = -1  # stands for what is returned, among positions of arguments
Expected = dict[int, Any]  # must be found after the call, by position


@dataclass(frozen=True, kw_only=True)
class InPlaceCase(Case):
    """One call on all ranks, and what it must leave in its arguments.

    Attributes:
        shape: of the tensor, or of a chunk where there are several.
        expected: for each rank what must be found after the call, by position of the argument or RETURNED;
            what is not named may be anything.
        budget: of the ranks' messages.
        root: src or dst of a rooted operation.
        summands: for each rank, the contributions of all ranks to the sum that it must end up with.
    """

    patterns: ClassVar = mistakes.PATTERNS

    shape: tuple[int, ...]
    dtype: torch.dtype
    expected: Sequence[Expected]
    budget: Budget
    root: int | None = None
    root_name: str = "src"
    summands: Sequence[Sequence[torch.Tensor]] | None = None

    def __str__(self) -> str:
        ranks = ranks_in_words(self.world_size, self.members)
        root = "" if self.root is None else f", {self.root_name}={self.root}"
        shape = " × ".join(f"{size:,}" for size in self.shape)
        twice = ", called twice" if self.driver in (call_twice, call_again) else ""
        return f"{ranks}{root}, {shape} × {dtype_name(self.dtype)}{twice}"

    def argument(self, rank: int, place: int) -> Any:
        """Return what the rank is given at this position; None for what it returns."""
        given = self.inputs[rank]
        return None if given is None or place == RETURNED else given[place]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def weight(self) -> tuple[int, int]:
        return self.numel, self.world_size

    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        return _first_problem(self, outcomes)

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason in (runs.DEADLOCK, runs.TIMED_OUT) and not failure.exception:
            if not_allowed := forbidden(failure.calls):  # it need not be made to work
                return not_allowed
            if lost := _lost_message(failure):
                expected = "a wait() for every isend and irecv"
                return Problem(mistakes.UNWAITED, expected, f"{lost}\n{failure.message}")
            if _all_send(failure):
                return Problem(mistakes.ALL_SEND_FIRST, self.answered, failure.message)
            if _send_in_a_circle(failure):
                return Problem(mistakes.SOME_SEND_FIRST, self.answered, failure.message)
        return super().explain(failure)


def _lost_message(failure: RunFailed) -> str:
    """Find the isend that a rank waits for in vain: without a wait, its message may never leave."""
    for rank, own in enumerate(failure.calls):
        for call in sends(own):
            others = failure.calls[call.peer] if call.peer is not None else []
            last = next(reversed(others), call)
            waits_for_it = last.op == "recv" and last.end is None and meet(rank, call, call.peer, last)
            if call.end is None and waits_for_it:
                return f"none for the isend in line {call.line} on rank {rank}"
    return ""


def _all_send(failure: RunFailed) -> bool:
    """Tell whether all ranks that called anything, odd and even ones, stand in a send."""
    callers = {rank for rank, own in enumerate(failure.calls) if own}
    return callers == set(_receivers(failure)) and {rank % 2 for rank in callers} == {0, 1}


def _send_in_a_circle(failure: RunFailed) -> bool:
    """Tell whether ranks wait in sends to each other, at whichever others."""
    receivers = _receivers(failure)
    for first in receivers:
        rank: int | None = first
        for _ in receivers:
            rank = receivers.get(rank) if rank is not None else None
            if rank == first:
                return True
    return False


def _receivers(failure: RunFailed) -> dict[int, int | None]:
    """Return to which rank each one sends that stands in a send.

    Where time ran out, a rank may have gone on behind its isend, into a loop that never ends.
    """
    last = {rank: own[-1] for rank, own in enumerate(failure.calls) if own}
    proven = failure.reason == runs.DEADLOCK
    return {
        rank: call.peer
        for rank, call in last.items()
        if call.op == "send" and (proven or not call.asynchronous)
    }


def _first_problem(case: InPlaceCase, outcomes: Sequence[Outcome | None]) -> Problem | None:
    calls = calls_of(outcomes)
    broken = violation(case.budget, calls)
    if broken and broken.mistake is mistakes.FORBIDDEN:  # its result is not the student's work
        return broken
    for rank, outcome in enumerate(outcomes):
        problem = outcome and (_wrong_type(case, rank, outcome) or _wrong_value(case, rank, outcome))
        if (
            problem
            and problem.mistake is mistakes.UNTOUCHED
            and _only_the_source_is_wrong(case, rank, outcomes)
        ):
            problem = replace(problem, mistake=mistakes.OWN_PART)
        if problem:
            return mismatched(calls) or unwaited(calls) or problem  # reasons enough for any wrong value
    return broken


def _only_the_source_is_wrong(case: InPlaceCase, rank: int, outcomes: Sequence[Outcome | None]) -> bool:
    """Tell whether this is the rank that deals out what all others have received."""
    others = [(other, own) for other, own in enumerate(outcomes) if own and other != rank]
    is_source = case.root_name == "src" and rank == case.root
    return is_source and bool(others) and not any(_wrong_value(case, *other) for other in others)


def _wrong_type(case: InPlaceCase, rank: int, outcome: Outcome) -> Problem | None:
    """Compare what was returned; in place of nothing it may be the tensor that was filled."""
    expected = case.expected[rank]
    if RETURNED in expected:
        want = f"{kind_of(expected[RETURNED])} returned on rank {rank}"
        if kind_of(outcome.value) != kind_of(expected[RETURNED]):
            return Problem(WRONG_TYPE, want, kind_of(outcome.value))
        return None
    if outcome.value is None or any(same(outcome.value, argument) for argument in outcome.arguments):
        return None
    if any(same(outcome.value, value) for value in expected.values()):
        return Problem(
            mistakes.NOT_IN_PLACE,
            f"the result in an argument on rank {rank}",
            "the result was returned instead",
        )
    return Problem(WRONG_TYPE, f"None returned on rank {rank}", kind_of(outcome.value))


def _wrong_value(case: InPlaceCase, rank: int, outcome: Outcome) -> Problem | None:
    wrong_places = [
        (place, want, got)
        for place, want in case.expected[rank].items()
        if not same(got := outcome.value if place == RETURNED else _argument(outcome, place), want)
    ]
    for place, want, _ in wrong_places:  # first, as it may be why another value is wrong
        if want is case.argument(rank, place):
            return Problem(MODIFIED, f"argument {place + 1} of rank {rank} as it was", "it was changed")
    for place, want, got in wrong_places:
        before = case.argument(rank, place)
        where, is_own = f"rank {rank}: ", False
        if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
            wrong = [at for at in range(len(want)) if not same(got[at], want[at])]
            at = wrong[0]
            is_own = len(want) > 1 and [(case.members or range(len(want)))[at] for at in wrong] == [rank]
            where += f"item {at}: "
            want, got, before = want[at], got[at], before[at]
        if not _comparable(want, got):
            return Problem(WRONG_TYPE, where + kind_of(want), kind_of(got))
        mistake, remark = _diagnose(case, rank, place, want, got, before)
        mistake = mistakes.OWN_PART if is_own and mistake is mistakes.UNTOUCHED else mistake
        expected, found = difference(want, got)
        return Problem(mistake, where + expected, found + remark)
    return None


def _comparable(want: object, got: object) -> bool:
    return isinstance(want, torch.Tensor) and kind_of(want) == kind_of(got)


def _argument(outcome: Outcome, place: int) -> Any:
    return outcome.arguments[place] if place < len(outcome.arguments) else None


def _diagnose(
    case: InPlaceCase,
    rank: int,
    place: int,
    want: torch.Tensor,
    got: torch.Tensor,
    before: torch.Tensor | None,
) -> tuple[Mistake, str]:
    """Tell what a wrong value is a sign of, with a remark for the table."""
    if case.driver is call_twice and same(got, -want):
        return OVERWRITTEN, " (the result of the next call)"
    if case.driver is call_again and same(got, -want):
        return FROM_AN_EARLIER_CALL, " (the result of the call before)"
    if before is not None and same(got, before):
        return mistakes.UNTOUCHED, " (as before the call)"
    for other, wanted in enumerate(case.expected):
        if other != rank and place in wanted and same(got, wanted[place]):
            return mistakes.SHIFTED, f" (which belongs to rank {other})"
    if (
        before is not None
        and got.shape == before.shape
        and torch.equal(got[got != want], before[got != want])
    ):
        return mistakes.UNFILLED, " (the wrong ones are as before the call)"
    if torch.equal(got.flatten().sort().values, want.flatten().sort().values):
        return mistakes.SHIFTED, " (all values are there, in another order)"
    if before is not None and same(got, want + before) and not _is_summand(case, rank, before):
        return mistakes.ADDED_ON, " (added to what was there before)"
    if _nearly(got, want):
        return mistakes.LOST_DIGITS, " (almost)"
    if case.summands is not None:
        return _summands(case, case.summands[rank], got)
    return mistakes.VALUE, ""


def _is_summand(case: InPlaceCase, rank: int, tensor: torch.Tensor) -> bool:
    return case.summands is not None and any(tensor is each for each in case.summands[rank])


def _nearly(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Tell whether no value is further off than by a thousandth of the largest one."""
    difference = (got.double() - want.double()).abs().max()
    return bool(difference <= 1e-3 * want.double().abs().max())


def _is_mean(total: torch.Tensor, number: int, got: torch.Tensor) -> bool:
    """Tell whether these are the elements of a sum divided by the number of summands, rounded in any way."""
    if number == 1 or not got.numel():
        return False
    if got.dtype.is_floating_point:
        return torch.allclose(got.double(), total.double() / number, rtol=0.01, atol=0.0)
    return any(torch.equal(got, torch.div(total, number, rounding_mode=how)) for how in ("floor", "trunc"))


def _summands(case: InPlaceCase, summands: Sequence[torch.Tensor], got: torch.Tensor) -> tuple[Mistake, str]:
    """Tell which contributions a wrong sum contains, where that can be told."""
    exactly = torch.float64 if case.dtype.is_floating_point else torch.int64
    if _is_mean(torch.stack(tuple(summands)).sum(0).view_as(got), len(summands), got):
        return mistakes.AVERAGED, f" (the sum divided by {len(summands)})"
    parts = torch.stack([part.to(exactly).flatten() for part in summands])
    total = got.to(exactly).flatten()
    fits = parts.shape[1] == total.shape[0] >= 2 * parts.shape[0]
    if not fits or not total.isfinite().all():  # inf and nan come of memory that nothing was written to
        return mistakes.VALUE, ""
    times = torch.linalg.lstsq(parts.T.double(), total.double()[:, None]).solution.round().flatten()
    if not torch.equal(times.to(exactly) @ parts, total):
        return mistakes.VALUE, ""
    ranks = case.members or range(case.world_size)
    missing = [str(member) for member, count in zip(ranks, times, strict=True) if count == 0]
    repeated = [str(member) for member, count in zip(ranks, times, strict=True) if count > 1]
    if missing:
        return mistakes.MISSING_SUMMAND, f" (the sum without rank {', '.join(missing)})"
    if repeated:
        return mistakes.REPEATED_SUMMAND, f" (the sum with rank {', '.join(repeated)} more than once)"
    return mistakes.VALUE, ""
