"""Runs a student's function on the cases of a check and says what is wrong with each.

`checks` makes the cases, `student` runs them, `policy` counts their traffic; what comes out goes to
`verdict`, which shows it. Expected values are computed by the check and never leave this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from autograder import student, verdict
from autograder.policy import Budget, Problem, mismatched, sends, violation
from autograder.student import Function, Outcome, RunFailed
from autograder.verdict import Result, Verdict

RETURNED = "returned"
MAX_UNANSWERED = 2  # cases without an answer: each takes its time, and two show what they have in common


@dataclass(frozen=True)
class Case:
    """One call on all ranks, and what has to come of it.

    Attributes:
        inputs: the arguments for each rank; None where the function is not called.
        expected: for each rank what must be found after the call, by position of the argument or RETURNED;
            what is not named may be anything.
        budget: what the ranks may send.
        members: ranks of the process group that is passed, if not the default one.
        root: src or dst of a rooted operation.
        summands: for each rank, what each rank contributes to the sum that it must end up with.
    """

    world_size: int
    numel: int
    dtype: torch.dtype
    inputs: Sequence[tuple | None]
    expected: Sequence[dict[int | str, object]]
    budget: Budget
    members: tuple[int, ...] | None = None
    root: int | None = None
    root_name: str = "src"
    summands: Sequence[Sequence[torch.Tensor]] | None = None

    def __str__(self) -> str:
        ranks = f"{self.world_size} rank{'s' if self.world_size > 1 else ''}"
        if self.members is not None:
            ranks += f", group of {', '.join(map(str, self.members))}"
        root = "" if self.root is None else f", {self.root_name}={self.root}"
        return f"{ranks}{root}, {self.numel:,} × {str(self.dtype).removeprefix('torch.')}"


def judge(name: str, function: Callable | Function, cases: Iterable[Case], seed: int) -> None:
    """Runs the cases on every backend there is and shows the verdict.

    A check ends in bounded time, whatever the function does: at most two cases may go without an answer,
    and none after a timeout.

    Raises:
        AssertionError: when a case fails, with the verdict as its text.
    """
    began = time.perf_counter()
    with student.handle(function) as handle:
        results = list(_results(handle, cases))
    verdict.show(Verdict(name, results, seed, time.perf_counter() - began))


def _results(handle: Function, cases: Iterable[Case]) -> Iterator[Result]:
    unanswered = 0
    hopeless: set[int] = set()  # world sizes
    for case in cases:
        if case.world_size in hopeless:
            continue
        for backend in student.backends(case.world_size):
            try:
                outcomes = handle.run(case.inputs, members=case.members, backend=backend)
            except RunFailed as failure:
                problem = _without_outcome(failure)
                yield Result(case, backend, problem)
                if failure.reason == student.TIMED_OUT or problem.kind == "not implemented":
                    return
                if failure.reason in (student.DEADLOCK, student.DIED):
                    hopeless.add(case.world_size)
                unanswered += failure.reason != student.WRONG_TYPE
                break
            yield Result(case, backend, _first_problem(case, outcomes))
        if unanswered == MAX_UNANSWERED:
            return


def _without_outcome(failure: RunFailed) -> Problem:
    expected = "an answer from every rank"
    if failure.exception == "NotImplementedError":
        return Problem("not implemented", expected, "the function is not implemented yet")
    if cause := mismatched(failure.calls):
        return cause
    if failure.reason in (student.DEADLOCK, student.TIMED_OUT):
        if lost := _lost_message(failure):
            return Problem("unwaited", "a wait() for every isend and irecv", f"{lost}\n{failure.message}")
        if _all_send(failure):
            return Problem("all send first", expected, failure.message)
    return Problem(failure.reason, expected, failure.message)


def _lost_message(failure: RunFailed) -> str:
    """The isend that a rank waits for in vain, if any: without a wait, its message may never leave."""
    for rank, own in enumerate(failure.calls):
        for call in sends(own):
            last = next(reversed(failure.calls[call.peer]), call)
            if call.end is None and (last.op, last.peer, last.seq) == ("recv", rank, call.seq):
                return f"none for the isend in line {call.line} on rank {rank}"
    return ""


def _all_send(failure: RunFailed) -> bool:
    """Whether sending was the last thing that every rank did: nobody was there to receive."""
    return {own[-1].op for own in failure.calls if own} == {"send"}


def _first_problem(case: Case, outcomes: Sequence[Outcome | None]) -> Problem | None:
    calls = [outcome.calls if outcome else [] for outcome in outcomes]
    broken = violation(case.budget, calls)
    if broken and broken.kind == "forbidden":  # whatever it computed, it is not the student's work
        return broken
    for rank, outcome in enumerate(outcomes):
        problem = outcome and (_wrong_type(case, rank, outcome) or _wrong_value(case, rank, outcome))
        if problem:
            return mismatched(calls) or problem  # which is reason enough for any wrong value
    return broken


def _wrong_type(case: Case, rank: int, outcome: Outcome) -> Problem | None:
    """A function that returns nothing may also return the tensor that it filled, as many do out of habit."""
    expected = case.expected[rank]
    if RETURNED in expected:
        want = f"{_kind(expected[RETURNED])} returned on rank {rank}"
        if _kind(outcome.value) != _kind(expected[RETURNED]):
            return Problem("wrong type", want, _kind(outcome.value))
        return None
    if outcome.value is None or any(_same(outcome.value, argument) for argument in outcome.arguments):
        return None
    if any(_same(outcome.value, value) for value in expected.values()):
        return Problem(
            "not in place", f"the result in an argument on rank {rank}", "the result was returned instead"
        )
    return Problem("wrong type", f"None returned on rank {rank}", _kind(outcome.value))


def _wrong_value(case: Case, rank: int, outcome: Outcome) -> Problem | None:
    for place, want in case.expected[rank].items():
        got = outcome.value if place == RETURNED else _argument(outcome, place)
        if _same(got, want):
            continue
        before = None if place == RETURNED else case.inputs[rank][place]
        if want is before:
            return Problem("modified", f"argument {place + 1} of rank {rank} as it was", "it was changed")
        where = f"rank {rank}: "
        if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
            at = next(at for at in range(len(want)) if not _same(got[at], want[at]))
            where += f"item {at}: "
            want, got, before = want[at], got[at], before[at]
        if not _comparable(want, got):
            return Problem("wrong type", where + _kind(want), _kind(got))
        kind, remark = _diagnose(case, rank, place, want, got, before)
        expected, found = _difference(want, got)
        return Problem(kind, where + expected, found + remark)
    return None


def _comparable(want: object, got: object) -> bool:
    return isinstance(want, torch.Tensor) and _kind(want) == _kind(got)


def _argument(outcome: Outcome, place: int) -> object:
    return outcome.arguments[place] if place < len(outcome.arguments) else None


def _diagnose(
    case: Case,
    rank: int,
    place: int | str,
    want: torch.Tensor,
    got: torch.Tensor,
    before: torch.Tensor | None,
) -> tuple[str, str]:
    """The kind of a wrong value, and a remark for the table."""
    if before is not None and _same(got, before):
        return "untouched", " (as before the call)"
    for other, wanted in enumerate(case.expected):
        if other != rank and place in wanted and _same(got, wanted[place]):
            return "shifted", f" (which belongs to rank {other})"
    if (
        before is not None
        and got.shape == before.shape
        and torch.equal(got[got != want], before[got != want])
    ):
        return "unfilled", " (the wrong ones are as before the call)"
    if case.summands is not None:
        return _summands(case, rank, got)
    return "value", ""


def _summands(case: Case, rank: int, got: torch.Tensor) -> tuple[str, str]:
    """Which contributions a wrong sum contains, where that can be told."""
    parts = torch.stack([part.double().flatten() for part in case.summands[rank]])
    total = got.double().flatten()
    if parts.shape[1] != total.shape[0] or parts.shape[1] < 2 * parts.shape[0]:
        return "value", ""
    times = torch.linalg.lstsq(parts.T, total[:, None]).solution.round().flatten()
    if not torch.equal(times @ parts, total):
        return "value", ""
    ranks = case.members or range(case.world_size)
    missing = [str(member) for member, count in zip(ranks, times, strict=True) if count == 0]
    repeated = [str(member) for member, count in zip(ranks, times, strict=True) if count > 1]
    if missing:
        return "missing summand", f" (the sum without rank {', '.join(missing)})"
    if repeated:
        return "repeated summand", f" (the sum with rank {', '.join(repeated)} more than once)"
    return "value", ""


def _same(got: object, want: object) -> bool:
    """Equal in type, dtype, shape and every element; sums are drawn so that they are exact in any order."""
    if type(got) is not type(want):
        return False
    if isinstance(want, torch.Tensor):
        return got.dtype == want.dtype and got.shape == want.shape and torch.equal(got, want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(_same, got, want))
    return got == want


def _difference(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    """Expected and got at the first place where they differ."""
    wrong = (want != got).flatten().nonzero().flatten()
    first = int(wrong[0])
    share = f" ({len(wrong):,} of {want.numel():,} wrong)" if want.numel() > 1 else ""
    return f"[{first}] = {_number(want, first)}", f"[{first}] = {_number(got, first)}{share}"


def _number(tensor: torch.Tensor, at: int) -> str:
    return f"{tensor.flatten()[at].item():,.10g}"


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"
