"""Runs a student's code on the cases of a check and says what is wrong with each.

`checks` makes the cases, `student` runs them; what comes out goes to `verdict`, which shows it. Expected
values are computed by the check and never leave this process.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autograder import student, verdict
from autograder.policy import Problem
from autograder.reading import forbidden
from autograder.student import Function, Outcome, RunFailed
from autograder.verdict import Result, Verdict

MAX_UNANSWERED = 2  # cases without an answer: each takes its time, and two show what they have in common


@dataclass(frozen=True, kw_only=True)
class Case(ABC):
    """One call on all ranks, and what has to come of it; `str` names it for the student.

    Attributes:
        inputs: the arguments for each rank; None where nothing is called.
        members: ranks of the process group that is passed, if not the default one.
        driver: a function of `autograder.drivers` that uses the student's code; by default it is just called.
        backends: those that it runs on, where there are GPUs enough.
        counts_alone: whether its check earns a part of the points when this passes and others fail: each
            case that passes the same.
    """

    # What failing cases may have in common: a rule and its hint, the most telling first.
    patterns: ClassVar[Sequence[tuple[Callable[[Result], bool], str]]] = ()
    answered: ClassVar[str] = "an answer from every rank"

    inputs: Sequence[tuple | None]
    members: tuple[int, ...] | None = None
    driver: Callable | None = None
    backends: Sequence[str] = ("gloo", "nccl")
    counts_alone: bool = False

    @property
    def world_size(self) -> int:
        return len(self.inputs)

    @property
    def weight(self) -> tuple[int, int]:
        """How telling its failure is: in small cases much is right, or wrong, by accident."""
        return 0, self.world_size

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        """What is wrong with what the call left behind on each rank."""

    def explain(self, failure: RunFailed) -> Problem:
        """What is wrong when there was no outcome."""
        return Problem(failure.reason, self.answered, failure.message)


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


@dataclass(frozen=True, kw_only=True)
class Reading(Case):
    """The code as it is written; nothing is called."""

    inputs: Sequence[tuple | None] = ()

    def __str__(self) -> str:
        return "the code itself"

    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        """Without a call there is nothing to examine."""


def judge(
    name: str, code: Callable | Function, cases: Iterable[Case], seed: int, banned: Sequence[str] = ()
) -> None:
    """Reads the code, runs the cases on every backend there is, and shows the verdict.

    A check ends in bounded time, whatever the code does: at most two cases may go without an answer, and
    none after a timeout.

    Args:
        name: what is checked.
        code: the student's function or class.
        cases: made one by one, as they are run.
        seed: that the inputs were drawn with.
        banned: what the exercise forbids, a list of `forbidden`. Code that uses it is not run.

    Raises:
        AssertionError: when a case fails, with the verdict as its text.
    """
    began = time.perf_counter()
    cases = _Counted(cases)
    with student.handle(code) as handle:
        results = _read(handle, banned)
        if not results:
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


def _read(handle: Function, banned: Sequence[str]) -> list[Result]:
    """What is wrong with the text of the code, if it can be had; without it nothing is graded."""
    source = handle.source
    problem = source and forbidden.problem(source.name, source.cells, banned)
    return [Result(Reading(), "read, not run", problem)] if problem else []


def _until_failure(results: Iterator[Result]) -> Iterator[Result]:
    for result in results:
        yield result
        if result.problem:
            return


def _results(handle: Function, cases: Iterable[Case]) -> Iterator[Result]:
    unanswered = 0
    hopeless: set[int] = set()  # world sizes
    for case in cases:
        if case.world_size in hopeless:
            continue
        for backend in [b for b in handle.backends(case.world_size) if b in case.backends]:
            try:
                outcomes = handle.run(case.inputs, members=case.members, backend=backend, driver=case.driver)
            except RunFailed as failure:
                problem = _without_outcome(case, failure)
                yield Result(case, backend, problem)
                if failure.reason == student.TIMED_OUT or problem.kind == "not implemented":
                    return
                if failure.reason in (student.DEADLOCK, student.DIED):
                    hopeless.add(case.world_size)
                unanswered += failure.reason != student.WRONG_TYPE
                break
            yield Result(case, backend, case.examine(outcomes))
        if unanswered == MAX_UNANSWERED:
            return


def _without_outcome(case: Case, failure: RunFailed) -> Problem:
    if failure.exception == "NotImplementedError":
        return Problem("not implemented", case.answered, "it is not implemented yet")
    return case.explain(failure)
