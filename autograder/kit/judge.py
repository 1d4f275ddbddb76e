"""Runs a student's code on the cases of a check and says what is wrong with each.

`checks` makes the cases, `student` runs them; what comes out goes to `verdict`, which shows it. Expected
values are computed by the check and never leave this process.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from autograder.inside import runs
from autograder.inside.forbidden import ForbiddenLibrary
from autograder.inside.moments import Unmarked
from autograder.inside.runs import NotDefined, RunFailed
from autograder.kit import student, verdict
from autograder.kit.pattern import Pattern
from autograder.kit.policy import Problem
from autograder.kit.received import too_little
from autograder.kit.student import Function, Outcome
from autograder.kit.verdict import Result, Verdict

_NO_SUCH_RANK = re.compile(r"There is no rank -?\d+ in this group of \d+")  # `fourranks.rank.wrong_rank` says
_AT_ONCE = ("not implemented", "not defined", "forbidden library")  # of which no other case tells more
# Cases without an answer take their time: of each world size two are run, and two such world sizes. They show
# what failing cases have in common.
MAX_UNANSWERED = 2
MAX_HOPELESS = 2
TIMES_TO_MEASURE = (
    6  # the usual time: such a case moves tens of MiB, also where much else is graded meanwhile
)


@dataclass(frozen=True, kw_only=True)
class Case(ABC):
    """One call on all ranks, and what has to come of it; `str` names it for the student.

    Attributes:
        inputs: the arguments for each rank; None where nothing is called.
        members: ranks of the process group that is passed, if not the default one.
        driver: a function of `inside.drivers` that uses the student's code; by default it is just called.
        backends: those that it runs on, where there are GPUs enough.
        received: bytes that each rank must have got from others to have its result; empty where nothing
            depends on other ranks.
        measures: whether it is about what Linux says of the ranks' memory; it is run only where somebody
            asks Linux.
        counts_alone: whether its check earns a part of the points when this passes and others fail: each
            case that passes the same.
    """

    # What failing cases may have in common, the most telling first.
    patterns: ClassVar[Sequence[Pattern]] = ()
    answered: ClassVar[str] = "an answer from every rank"

    inputs: Sequence[tuple | None]
    members: tuple[int, ...] | None = None
    driver: Callable | None = None
    backends: Sequence[str] = ("gloo", "nccl")
    received: Sequence[int] = ()
    measures: bool = False
    counts_alone: bool = False

    @property
    def world_size(self) -> int:
        return len(self.inputs)

    @property
    def weight(self) -> tuple[int, int]:
        """How telling its failure is: in small cases much is right, or wrong, by accident."""
        return 0, self.world_size

    @property
    def peculiarities(self) -> set[Pattern]:
        """What is special about it; an ordinary case has the fewest."""
        return {pattern for pattern in self.patterns if pattern.has(self)}

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        """What is wrong with what the call left behind on each rank."""

    def explain(self, failure: RunFailed) -> Problem:
        """What is wrong when there was no outcome."""
        kind = "no such rank" if _NO_SUCH_RANK.search(failure.message) else failure.reason
        return Problem(kind, self.answered, failure.message)


@dataclass(frozen=True, kw_only=True)
class Trial(Case):
    """A case whose outcomes a function of the check examines.

    Attributes:
        title: what the student reads.
        verify: finds what is wrong with the outcomes, one for each rank (None where nothing was called).
        size: how telling its failure is, among the trials of its check.
    """

    title: str
    verify: Callable[[Sequence[Outcome | None]], Problem | None]
    size: int = 0

    @property
    def weight(self) -> tuple[int, int]:
        return self.size, self.world_size

    def __str__(self) -> str:
        return self.title

    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        return self.verify(outcomes)


def judge(
    name: str, code: Callable | Function, cases: Iterable[Case], seed: int, banned: Sequence[str] = ()
) -> None:
    """Run the cases on every backend there is, and show the verdict.

    A check ends in bounded time, whatever the code does. Of each world size at most two cases may go without
    an answer, the second one as unlike the first as there is. Two such world sizes end it, and so does a
    timeout.

    Args:
        name: what is checked.
        code: the student's function or class.
        cases: made one by one, as they are run.
        seed: that the inputs were drawn with.
        banned: what the exercise forbids, a list of `forbidden`. Where the code runs, it is not there.

    Raises:
        AssertionError: when a case fails, with the verdict as its text.
    """
    began = time.perf_counter()
    cases = _Counted(cases)
    with student.handle(code) as handle:
        handle.forbid(banned)
        results = _results(handle, cases)
        results = list(_until_failure(results) if handle.until_failure else results)
    seconds = time.perf_counter() - began
    verdict.show(Verdict(name, results, seed, seconds, cases.not_in(results)))


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
        """How many were not run; 0 if they count all together anyway."""
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
            if failure.reason == runs.TIMED_OUT or results[-1].problem.kind in _AT_ONCE:
                return
            unanswered[world_size] += 1
            waiting = iter(_unlike(case, waiting))
        if list(unanswered.values()).count(MAX_UNANSWERED) == MAX_HOPELESS:
            return


def _unlike(failed: Case, cases: Iterable[Case]) -> list[Case]:
    """The cases, least like the failed one first, and of equals the most ordinary."""
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
    results = []
    for backend in [b for b in handle.backends(case.world_size) if b in case.backends]:
        try:
            outcomes = handle.run(case.inputs, members=case.members, backend=backend, driver=case.driver)
        except RunFailed as failure:
            problem = _without_outcome(case, failure)
            return [*results, Result(case, backend, problem, handle.printed)], failure
        problem = _examined(case, outcomes)
        results.append(Result(case, backend, problem, handle.printed if problem else ""))
    return results, None


def _examined(case: Case, outcomes: Sequence[Outcome | None]) -> Problem | None:
    try:
        calls = [outcome.calls if outcome else [] for outcome in outcomes]
        return case.examine(outcomes) or too_little(case.received, calls)
    except Unmarked as error:  # something has run in place of the driver, or driven it
        return Problem(runs.UNTOLD, case.answered, f"another course of events: {error}")


def _without_outcome(case: Case, failure: RunFailed) -> Problem:
    if failure.exception == "NotImplementedError":
        return Problem("not implemented", case.answered, "it is not implemented yet")
    if failure.exception == NotDefined.__name__:
        return Problem("not defined", "a cell that defines it", failure.message)
    if failure.exception == ForbiddenLibrary.__name__:
        return Problem("forbidden library", "what is written under Allowed", failure.message)
    return case.explain(failure)
