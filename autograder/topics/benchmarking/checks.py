"""The check of exercise 03's benchmark; those of its formulas are in `bandwidths`.

`benchmark` runs on real ranks whose clocks are pretended (`inside.drivers.benchmarking`), so its answer
has to be exact, and each frequent mistake has an answer of its own, by which it is known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, ClassVar

import torch

from autograder.inside.drivers import benchmarking as drivers
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import NOT_A_NUMBER, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.received import not_waited_for_on_any
from autograder.kit.settings import ranks_in_words, some_ranks, taking_part
from autograder.kit.student import Outcome
from autograder.kit.values import is_number, kind_of
from autograder.topics.benchmarking import mistakes
from autograder.topics.benchmarking.banned import BANNED
from fourranks.naming import counted, name_ranks

Mistakes = Mapping[str, tuple[Mistake, float]]  # and what each would answer; the most telling ones first

WORLD_SIZES = (1, 2, 3, 4, 5)
_EXACT = 1e-6  # relative; loose enough for a clock in ns and for float32
_FLOAT32 = torch.finfo(torch.float32).eps * drivers.START  # seconds that float32 may lose of the clock
_SLACK = 0.1  # seconds that a busy machine may put off the reading of a real clock
# Nobody leaves one of these before all have come.
_MEETINGS = ("barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True)
class _BenchmarkPlan:
    """One benchmark: the time of its calls on each rank that takes part, warm-up first."""

    world_size: int
    warmup: int
    iterations: int
    device: str
    members: tuple[int, ...] | None
    seconds: Sequence[Sequence[float]]

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    @property
    def timed(self) -> list[list[float]]:
        """For each iteration the seconds of each rank."""
        return [list(times) for times in zip(*self.seconds, strict=True)][self.warmup :]

    @property
    def answer(self) -> float:
        return median(map(max, self.timed))

    def mistakes(self) -> Mistakes:
        """Return what benchmarks answer that make one mistake."""
        slowest = [max(times) for times in self.timed]
        by_rank = [own[self.warmup :] for own in self.seconds]
        with_warmup = [max(times) for times in zip(*self.seconds, strict=True)]
        known = {
            "warm-up timed": (mistakes.WARM_UP_TIMED, median(with_warmup)),
            "warm-up timed, mean": (mistakes.WARM_UP_TIMED, mean(with_warmup)),
            "fastest rank": (mistakes.FASTEST_RANK, median(map(min, self.timed))),
            "first rank only": (mistakes.FIRST_RANK_ONLY, median(by_rank[0])),
            "mean of the ranks": (mistakes.MEAN_OF_THE_RANKS, median(map(mean, self.timed))),
            "sum of the ranks": (mistakes.SUM_OF_THE_RANKS, median(map(sum, self.timed))),
            "mean of the iterations": (mistakes.MEAN_OF_THE_ITERATIONS, mean(slowest)),
            "mean of the iterations, by rank": (mistakes.MEAN_OF_THE_ITERATIONS, max(map(mean, by_rank))),
            "median before the ranks meet": (
                mistakes.MEDIAN_BEFORE_THE_RANKS_MEET,
                max(map(median, by_rank)),
            ),
            "slowest iteration": (mistakes.SLOWEST_ITERATION, max(slowest)),
            "fastest iteration": (mistakes.FASTEST_ITERATION, min(slowest)),
            "sum of the iterations": (mistakes.SUM_OF_THE_ITERATIONS, sum(slowest)),
            "one sample": (mistakes.ONE_SAMPLE, slowest[0]),
            "one sample, the last": (mistakes.ONE_SAMPLE, slowest[-1]),
        }
        return {**self._mistakes_on_a_gpu(slowest), **known} if self.device == "cuda" else known

    def _mistakes_on_a_gpu(self, slowest: Sequence[float]) -> Mistakes:
        """Return what comes of not waiting for a GPU: behind the call, or before the clock starts."""
        first = max(sum(own[: self.warmup + 1]) - self.warmup * drivers.LAUNCH for own in self.seconds)
        return {
            "not synchronized": (mistakes.NOT_SYNCHRONIZED, drivers.LAUNCH),
            "unfinished before the clock": (
                mistakes.UNFINISHED_BEFORE_THE_CLOCK,
                median([first, *slowest[1:]]),
            ),
        }


@dataclass(frozen=True, kw_only=True)
class _BenchmarkTrial(Trial):
    patterns: ClassVar = mistakes.PATTERNS
    answered: str = "the same number of seconds from every rank"

    plan: _BenchmarkPlan


@check(banned=BANNED)
def benchmark(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `benchmark` under a pretended clock at every world size, and once by the real one."""
    generator = random.Random(seed)
    for world_size in world_sizes:
        for warmup, iterations, device in ((2, 7, "cpu"), (0, 1, "cpu"), (3, 5, "cuda"), (2, 1, "cuda")):
            yield _pretended(_drawn(generator, world_size, warmup, iterations, device))
    largest = max(world_sizes, default=0)
    if largest >= 3:
        yield _pretended(_drawn(generator, largest, 1, 5, "cpu", some_ranks(largest)))
    yield _real(min(largest, 3))


def _drawn(
    generator: random.Random,
    world_size: int,
    warmup: int,
    iterations: int,
    device: str,
    members: tuple[int, ...] | None = None,
) -> _BenchmarkPlan:
    """Draw calls of 1 to 9 ms, one in four of them much longer, as on a busy machine."""

    def call() -> float:
        usual = generator.uniform(1e-3, 9e-3)
        return usual * generator.uniform(5, 20) if generator.random() < 0.25 else usual

    seconds = [
        [generator.uniform(0.3, 0.6) for _ in range(warmup)] + [call() for _ in range(iterations)]
        for _ in range(len(members or range(world_size)))
    ]
    return _BenchmarkPlan(world_size, warmup, iterations, device, members, seconds)


def _pretended(plan: _BenchmarkPlan) -> Trial:
    ranks = ranks_in_words(plan.world_size, plan.members)
    device = ", device cuda (pretended)" if plan.device == "cuda" else ""
    by_rank = dict(zip(plan.ranks, plan.seconds, strict=True))
    return _BenchmarkTrial(
        title=f"{ranks}, warmup={plan.warmup}, iterations={plan.iterations}{device}",
        inputs=[
            (list(by_rank[rank]), plan.warmup, plan.iterations, plan.device) if rank in by_rank else None
            for rank in range(plan.world_size)
        ],
        members=plan.members,
        driver=drivers.pretended,
        verify=lambda outcomes: _examine(plan, outcomes),
        received=[4 * (rank in by_rank and len(by_rank) > 1) for rank in range(plan.world_size)],
        backends=("gloo",),
        size=plan.iterations,
        plan=plan,
    )


def _examine(plan: _BenchmarkPlan, outcomes: Sequence[Outcome | None]) -> Problem | None:
    answers = taking_part(outcomes)
    values = {rank: outcome.value.value for rank, outcome in answers}
    return (
        _not_a_number(values)
        or not_waited_for_on_any(answers)
        or first(_wrong_calls(plan, *answer) for answer in answers)
        or _wrong_seconds(plan, values)
        or first(_wrong_order(plan, *answer) for answer in answers)
        or first(_wrong_device(plan, *answer) for answer in answers)
    )


def _not_a_number(values: Mapping[str, object]) -> Problem | None:
    for rank, value in values.items():
        if not is_number(value):
            return Problem(NOT_A_NUMBER, f"a float returned on {rank}", kind_of(value))
    return None


def _wrong_calls(plan: _BenchmarkPlan, rank: str, answer: Outcome) -> Problem | None:
    calls = [moment.name for moment in answer.moments].count("run")
    wanted = plan.warmup + plan.iterations
    if calls == wanted:
        return None
    expected = f"{plan.warmup} + {plan.iterations} calls of run on {rank}"
    return Problem(mistakes.CALLS_OF_RUN, expected, counted(calls, "call"))


def _wrong_seconds(plan: _BenchmarkPlan, values: Mapping[str, float]) -> Problem | None:
    wrong = [(rank, value) for rank, value in values.items() if not _is(value, plan.answer)]
    if not wrong:
        return None
    rank, value = wrong[0]
    expected = f"{rank}: {_ms(plan.answer)}"
    if not all(_is(other, value) for other in values.values()):
        return Problem(
            mistakes.RANKS_DISAGREE, f"{_ms(plan.answer)} on {name_ranks(list(plan.ranks))}", _each(values)
        )
    for factor in (1e3, 1e6, 1e9):
        if _is(value, plan.answer * factor):
            return Problem(mistakes.NOT_IN_SECONDS, expected, f"{value:g} s")
    for name, (mistake, seconds) in plan.mistakes().items():
        if _is(value, seconds):
            return Problem(mistake, expected, f"{_ms(value)} ({name})")
    mistake = mistakes.LOST_DIGITS if abs(value - plan.answer) < _FLOAT32 else mistakes.SECONDS
    return Problem(mistake, expected, _ms(value))


def _is(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=_EXACT)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.6g} ms"


def _each(values: Mapping[str, float]) -> str:
    return ", ".join(f"{rank}: {_ms(value)}" for rank, value in values.items())


def _wrong_order(plan: _BenchmarkPlan, rank: str, answer: Outcome) -> Problem | None:
    """Find a rank that met the others on the clock, or not at all before the clock started."""
    marked = [(moment.at, moment.name) for moment in answer.moments]
    events = [*marked, *((call.start, call.op) for call in answer.calls)]
    names = [name for _, name in sorted(events, key=lambda event: event[0])]
    for iteration, between in enumerate(_between_calls(names)[plan.warmup :]):
        where = f"{rank}, iteration {iteration + 1}"
        before, on_the_clock = _at_clock(between.before)
        met = next(filter(_is_meeting, [*on_the_clock, *between.until_clock]), None)
        if met:
            return Problem(
                mistakes.BARRIER_TIMED, f"{where}: a barrier, then the clock", f"dist.{met} on the clock"
            )
        if len(plan.ranks) > 1 and not any(map(_is_meeting, before)):
            return Problem(mistakes.NO_BARRIER, f"{where}: a barrier, then the clock", "no barrier")
    return None


@dataclass(frozen=True)
class _Around:
    """A rank's activity around one call of `run`: since the one before, and then until it read the clock."""

    before: Sequence[str]
    until_clock: Sequence[str]


def _between_calls(names: Sequence[str]) -> list[_Around]:
    """Return one `_Around` for each call, from the names of all that a rank did."""
    first, *calls = _split(names, "run")
    after = [_split(call, "ran")[1] for call in calls]
    return [
        _Around(before, own[: own.index("clock")] if "clock" in own else ())
        for before, own in zip([first, *after], after, strict=False)
    ]


def _split(names: Sequence[str], at: str) -> list[Sequence[str]]:
    """Return the stretches between the places of a name."""
    places = [-1, *(place for place, name in enumerate(names) if name == at), len(names)]
    return [names[start + 1 : end] for start, end in zip(places, places[1:], strict=False)]


def _at_clock(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return what comes before the last reading of the clock, and what after it."""
    last = max((place for place, name in enumerate(names) if name == "clock"), default=len(names))
    return names[:last], names[last:]


def _is_meeting(name: str) -> bool:
    return name.startswith(_MEETINGS)


def _wrong_device(plan: _BenchmarkPlan, rank: str, answer: Outcome) -> Problem | None:
    sent = [call.op for call in answer.calls if call.dtype.startswith(("float", "bfloat"))]
    if plan.device != "cuda" or answer.value.on_device or not sent:
        return None
    expected = f"{rank}: a tensor on {plan.device} for dist.{sent[-1]}"
    return Problem(mistakes.NOT_ON_THE_DEVICE, expected, "one on the CPU")


def _real(world_size: int) -> Trial:
    """Make a trial of calls that take 4 ms more on each rank, by the real clock."""
    warmup, iterations = 1, 5

    def verify(outcomes: Sequence[Outcome | None]) -> Problem | None:
        if unwaited := not_waited_for_on_any(taking_part(outcomes)):
            return unwaited
        answers: dict[str, drivers.Real] = {rank: outcome.value for rank, outcome in taking_part(outcomes)}
        values: dict[str, Any] = {rank: answer.value for rank, answer in answers.items()}
        if problem := _not_a_number(values):
            return problem
        took = [answer.took[warmup:] for answer in answers.values()]
        if any(len(times) != iterations for times in took):
            expected = f"{warmup} + {iterations} calls of run on each rank"
            return Problem(mistakes.CALLS_OF_RUN, expected, "others")
        truth = median(map(max, zip(*took, strict=True)))
        off = [rank for rank, value in values.items() if not 0.9 * truth <= value <= truth + _SLACK]
        if not off:
            return None
        return Problem(mistakes.SECONDS, f"{off[0]}: about {_ms(truth)}", _ms(values[off[0]]))

    return _BenchmarkTrial(
        title=f"{counted(world_size, 'rank')}, by the real clock",
        inputs=[(0.004 * (rank + 1), warmup, iterations) for rank in range(world_size)],
        driver=drivers.real,
        verify=verify,
        plan=_BenchmarkPlan(world_size, warmup, iterations, "cpu", None, ()),
    )
