"""A case of a check: one call of a student's code on all ranks, and what has to come of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from autograder.inside import reports, runs
from autograder.inside.drivers import name_of
from autograder.inside.drivers.calls import USED_AGAIN, use_again
from autograder.inside.moments import Unmarked
from autograder.inside.reports import Unreadable
from autograder.inside.runs import RunFailed
from autograder.kit import mistakes
from autograder.kit.mistakes import FROM_AN_EARLIER_CALL, Mistake
from autograder.kit.pattern import Pattern
from autograder.kit.problem import Problem
from autograder.kit.student import Function, Outcome

_OF_FAILURES = {
    runs.RAISED: mistakes.RAISED,
    runs.DEADLOCK: mistakes.DEADLOCK,
    runs.DIED: mistakes.DIED,
    runs.TIMED_OUT: mistakes.TIMED_OUT,
    runs.WRONG_TYPE: mistakes.WRONG_TYPE,
    runs.UNTOLD: mistakes.UNTOLD_TRAFFIC,
}

P = TypeVar("P", Problem, Problem | None)


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
        ranks: whether a class is ranked by its cost.
        answered: the expectation, where a call ends in no outcome.
        shows: the mistake that any failure of it shows, where other cases try all else.
    """

    # Properties that failing cases may have in common, the most telling first.
    patterns: ClassVar[Sequence[Pattern[Any]]] = ()
    # Where all ranks make the same calls: the mistake when they wait forever or die, and the expectation.
    out_of_step: ClassVar[tuple[Mistake, str] | None] = None

    inputs: Sequence[tuple[Any, ...] | None]
    members: tuple[int, ...] | None = None
    driver: Callable[..., Any] | None = None
    backends: Sequence[str] = ("gloo", "nccl")
    received: Sequence[int] = ()
    measures: bool = False
    counts_alone: bool = False
    ranks: bool = False
    answered: str = "an answer from every rank"
    shows: Mistake | None = None

    @property
    def world_size(self) -> int:
        return len(self.inputs)

    @property
    def weight(self) -> tuple[int, int]:
        """How telling its failure is: in small cases much is right, or wrong, by accident."""
        return 0, self.world_size

    @property
    def peculiarities(self) -> set[Pattern[Any]]:
        """Its special properties; an ordinary case has the fewest."""
        return {pattern for pattern in self.patterns if pattern.has(self)}

    @property
    def cost(self) -> float | None:
        """The cost of its run, if it has come to a cost; less is better."""
        return None

    @abstractmethod
    def __str__(self) -> str: ...

    def run(self, handle: Function, backend: str) -> Sequence[Outcome | None]:
        """Call the code on the ranks of a backend.

        Raises:
            RunFailed: when that is not the outcome on every rank.
        """
        return handle.run(self.inputs, members=self.members, backend=backend, driver=self.driver)

    @abstractmethod
    def examine(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        """Return what is wrong with what the call left behind on each rank."""

    def explain(self, failure: RunFailed) -> Problem:
        """Explain what is wrong when there was no outcome."""
        if self.out_of_step and failure.reason in (runs.DEADLOCK, runs.DIED):
            return Problem(*self.out_of_step, failure.message)
        reason = runs.RAISED if failure.exception else failure.reason
        mistake = mistakes.NO_SUCH_RANK if failure.no_such_rank else _OF_FAILURES[reason]
        return Problem(mistake, self.answered, failure.message)

    def understood(self, problem: P) -> P:
        """Return the problem as one of the mistake that the case shows, if it shows a single one."""
        return replace(problem, mistake=self.shows) if problem and self.shows else problem


@dataclass(frozen=True, kw_only=True)
class Trial(Case):
    """A case whose outcomes a function of the check examines, with the reports of its driver as their values.

    Attributes:
        title: for the student.
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
        try:
            return self.verify([self._read(rank, outcome) for rank, outcome in enumerate(outcomes)])
        except Unreadable as error:
            message = f"a rank answered what no check can read: {error}"
            return self.explain(RunFailed(runs.WRONG_TYPE, message))

    def _read(self, rank: int, outcome: Outcome | None) -> Outcome | None:
        """Return the outcome with the report that the driver makes as its value."""
        if self.inputs[rank] is None:
            return None
        if outcome is None:
            raise Unreadable(f"nothing from rank {rank}")
        return replace(outcome, value=reports.read(reports.form_of(self.driver), outcome.value))


T = TypeVar("T", bound=Trial)


def on_one_rank(
    title: str,
    arguments: tuple[Any, ...],
    verify: Callable[[Outcome], Problem | None],
    driver: Callable[..., Any] | None = None,
    kind: type[T] = Trial,  # type: ignore[assignment]  # mypy issue 3737: defaults of type variables
    **fields: Any,
) -> T:
    """Make a trial of one rank, which communicates with no other, so that one backend is enough.

    Args:
        arguments: of the driver, or of the student's function where there is none.
        fields: more of the trial's own.
    """

    def verify_only(outcomes: Sequence[Outcome | None]) -> Problem | None:
        (outcome,) = outcomes
        assert outcome is not None  # as `examine` has seen
        return verify(outcome)

    options = {"inputs": [arguments], "driver": driver, "verify": verify_only}
    return kind(title=title, **options | fields)


def again(trial: T, earlier: Trial) -> T:
    """Make a trial of code that has been used before, in the same processes, with the inputs of another one.

    Both trials belong to the check by themselves, too, with more weight: a failure here alone is left over.
    """
    pairs = zip(earlier.inputs, trial.inputs, strict=True)
    assert trial.driver
    inputs = [given and (name_of(trial.driver), before, given) for before, given in pairs]
    return used_before(trial, use_again, inputs)


def used_before(trial: T, driver: Callable[..., Any], inputs: Sequence[tuple[Any, ...] | None]) -> T:
    """Make a trial with a driver that uses the code, marks `USED_AGAIN`, and does as the trial's own does.

    The driver's result is read as a report of the trial's own driver, so its type is `object`.
    """
    return replace(
        trial,
        title=f"{trial.title}, called twice",
        inputs=inputs,
        driver=driver,
        verify=lambda outcomes: trial.examine([each and _used_again(each) for each in outcomes]),
        received=(),
        size=0,
        shows=FROM_AN_EARLIER_CALL,
    )


def _used_again(outcome: Outcome) -> Outcome:
    """Return what the second use has left behind, without the arguments, as if it had been the only one.

    Raises:
        Unmarked: there was none.
    """
    begins = [place for place, moment in enumerate(outcome.moments) if moment.name == USED_AGAIN]
    if len(begins) != 1:
        raise Unmarked(f"{USED_AGAIN!r} was marked {len(begins)} times, not once")
    began = outcome.moments[begins[0]].at
    return replace(
        outcome,
        arguments=[],
        calls=[call for call in outcome.calls if call.start >= began],
        moments=outcome.moments[begins[0] + 1 :],
    )


@dataclass(frozen=True)
class Result:
    """One case on one backend; no problem means that all is as it should be.

    Attributes:
        printed: the ranks' output in a case that failed, as far as it may be shown.
        stuck_in: names of the calls that ranks waited in forever.
    """

    case: Case
    backend: str
    problem: Problem | None
    printed: str = ""
    stuck_in: Sequence[str] = ()

    @property
    def fault(self) -> Problem:
        """The problem of a case that failed."""
        assert self.problem is not None
        return self.problem
