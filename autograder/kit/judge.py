"""Runs a student's code on the cases of a check and says what is wrong with each.

`checks` makes the cases, `student` runs them; the results go to `verdict`, which shows them. Expected
values are computed by the check and never leave this process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from autograder.inside import runs
from autograder.inside.forbidden import ForbiddenLibrary
from autograder.inside.moments import Unmarked
from autograder.inside.runs import NotDefined, RunFailed
from autograder.kit import student, verdict
from autograder.kit.case import Case, Result
from autograder.kit.messages import mismatched
from autograder.kit.mistakes import FORBIDDEN_LIBRARY, NOT_DEFINED, NOT_IMPLEMENTED, UNTOLD_TRAFFIC
from autograder.kit.problem import Problem
from autograder.kit.received import calls_of, too_little
from autograder.kit.student import Function, Outcome
from autograder.kit.verdict import Verdict

_AT_ONCE = (NOT_IMPLEMENTED, NOT_DEFINED, FORBIDDEN_LIBRARY)  # of which no other case tells more
# Cases without an answer take their time: of each world size two are run, and two such world sizes. They show
# what failing cases have in common.
MAX_UNANSWERED = 2
MAX_HOPELESS = 2
TIMES_TO_MEASURE = 6  # the usual time: such a case moves tens of MiB, also where much else is graded


def judge(
    name: str,
    code: Callable[..., Any] | Function,
    cases: Iterable[Case],
    seed: int,
    banned: Sequence[str] = (),
) -> None:
    """Run the cases on every backend there is, and show the verdict.

    A check ends in bounded time, whatever the code does. Of each world size at most two cases may go without
    an answer, the second one as unlike the first as there is. Two such world sizes end it, and so does a
    timeout. Cases that count alone are all run, unless one times out: each can still earn its points.

    Args:
        name: of the code that is checked.
        code: the student's function or class.
        cases: made one by one, as they are run.
        seed: that the inputs were drawn with.
        banned: names that the exercise forbids, a list `BANNED`. Where the code runs, it is not there.

    Raises:
        AssertionError: when a case fails, with the verdict as its text.
    """
    began = time.perf_counter()
    drawn = _Counted(cases)
    with student.handle(code) as handle:
        handle.forbid(banned)
        running = _results(handle, drawn)
        results = list(_until_failure(running) if handle.until_failure else running)
    seconds = time.perf_counter() - began
    verdict.show(Verdict(name, results, seed, seconds, drawn.not_in(results)))


class _Counted:
    """Cases, drawn one by one."""

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = iter(cases)
        self._number = 0

    def __iter__(self) -> Iterator[Case]:
        for case in self._cases:
            self._number += 1
            yield case

    def not_in(self, results: Sequence[Result]) -> int:
        """Return how many were not run; 0 if they count all together anyway."""
        if not any(result.case.counts_alone for result in results):
            return 0
        for _ in self:
            pass
        return self._number - len({id(result.case) for result in results})


def _until_failure(results: Iterator[Result]) -> Iterator[Result]:
    for result in results:
        yield result
        if result.problem:
            return


def _results(handle: Function, cases: Iterable[Case]) -> Iterator[Result]:
    unanswered: Counter[int] = Counter()  # by world size
    for world_size, group in groupby(cases, key=lambda case: case.world_size):
        waiting = group
        while unanswered[world_size] < MAX_UNANSWERED and (case := next(waiting, None)):
            results, failure = _run(handle, case)
            yield from results
            if failure is None or failure.reason == runs.WRONG_TYPE:
                continue
            if failure.reason == runs.TIMED_OUT or results[-1].fault.mistake in _AT_ONCE:
                return
            if case.counts_alone:
                continue
            unanswered[world_size] += 1
            waiting = iter(_unlike(case, waiting))
        if list(unanswered.values()).count(MAX_UNANSWERED) == MAX_HOPELESS:
            return


def _unlike(failed: Case, cases: Iterable[Case]) -> list[Case]:
    """Return the cases, least like the failed one first, and of equals the most ordinary."""
    failing = failed.peculiarities

    def order(case: Case) -> tuple[int, int]:
        return len(case.peculiarities & failing), len(case.peculiarities)

    return sorted(cases, key=order)


def _run(handle: Function, case: Case) -> tuple[list[Result], RunFailed | None]:
    """Run a case on each backend that there is; the first run without an outcome ends it."""
    if not case.measures:
        return _run_everywhere(handle, case)
    if not handle.measures:
        return [], None
    usual, handle.timeout = handle.timeout, handle.timeout * TIMES_TO_MEASURE
    try:
        return _run_everywhere(handle, case)
    finally:
        handle.timeout = usual


def _run_everywhere(handle: Function, case: Case) -> tuple[list[Result], RunFailed | None]:
    results: list[Result] = []
    for backend in _backends(handle, case):
        try:
            outcomes = case.run(handle, backend)
        except RunFailed as failure:
            problem = _without_outcome(case, failure)
            result = Result(case, backend, problem, handle.printed, failure.stuck_in)
            return [*results, result], failure
        found = _examined(case, outcomes)
        results.append(Result(case, backend, found, handle.printed if found else ""))
    return results, None


def _backends(handle: Function, case: Case) -> list[str]:
    if case.world_size == 1:  # a single rank has no one to communicate with
        return ["gloo"]
    return [backend for backend in handle.backends(case.world_size) if backend in case.backends]


def _examined(case: Case, outcomes: Sequence[Outcome | None]) -> Problem | None:
    try:
        return case.understood(case.examine(outcomes) or too_little(case.received, calls_of(outcomes)))
    except Unmarked as error:  # something has run in place of the driver, or driven it
        return Problem(UNTOLD_TRAFFIC, case.answered, f"another course of events: {error}")


def _without_outcome(case: Case, failure: RunFailed) -> Problem:
    if failure.exception == "NotImplementedError":
        return Problem(NOT_IMPLEMENTED, case.answered, "it is not implemented yet")
    if failure.exception == NotDefined.__name__:
        return Problem(NOT_DEFINED, "a cell that defines it", failure.message)
    if failure.exception == ForbiddenLibrary.__name__:
        return Problem(FORBIDDEN_LIBRARY, 'what the exercise lists under "You may use"', failure.message)
    if failure.reason != runs.UNTOLD and (cause := mismatched(failure.calls)):  # else they are forged
        return cause
    return case.understood(case.explain(failure))
