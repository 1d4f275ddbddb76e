"""A short soak for the table of `make bench`; the long one, `make soak`, writes `benchmarks/soak.md`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from benchmarks.model import OURS, Benchmark, Contender, at_most

from .judge import soak, trial

SEED = 0
PROGRAMS = 25  # of each sort: half a minute


def errors_of_legal_programs() -> Iterator[float]:
    yield float(_not_good(range(0, 2 * PROGRAMS, 2)))


def faults_missed() -> Iterator[float]:
    yield float(_not_good(range(1, 2 * PROGRAMS, 2)))


def _not_good(numbers: Iterable[int]) -> int:
    return sum(not judgement.is_good for judgement in soak(trial(SEED, number) for number in numbers))


def usable_again() -> Iterator[float]:
    faulty = (trial(SEED, number) for number in itertools.count(1, 2))
    for judgement in soak(each for each in faulty if each.forecast.reason in ("stuck", "contradiction")):
        if judgement.is_deadlock and judgement.outcome.seconds_to_usable is not None:
            yield judgement.outcome.seconds_to_usable


BENCHMARKS = (
    Benchmark(
        f"{PROGRAMS} random legal programs: errors, or ranks not usable afterwards",
        (Contender(OURS, errors_of_legal_programs, at_most(0, "")),),
        repeats=1,
        unit="",
    ),
    Benchmark(
        f"{PROGRAMS} random programs with a planted fault: missed, or ranks not usable afterwards",
        (Contender(OURS, faults_missed, at_most(0, "")),),
        repeats=1,
        unit="",
    ),
    Benchmark(
        "deadlocks of random programs: from the last rank getting stuck to usable again",
        (Contender(OURS, usable_again, at_most(1.5, "s")),),
        repeats=20,
    ),
)
