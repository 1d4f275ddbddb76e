"""Draws program after program, runs each on real ranks, and holds what became of it against the forecast."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from fourranks import CellTimeout, DeadlockError, RankDied, RankError
from fourranks.errors import StartError

from .faults import plant_any
from .generate import WORLD_SIZES, draw
from .oracle import Fate, Forecast, forecast
from .program import Program
from .world import Outcome, World

PROGRAMS_A_WORLD = 10  # before it is ended: what one program leaves must not harm the next ones


class Verdict(Enum):
    """What an outcome says of `fourranks`."""

    COMPLETED = "completed"
    DETECTED = "detected"
    MISSED = "missed"
    FALSE_ALARM = "false alarm"
    RANK_LOST = "rank lost"  # a process ended that nobody had killed


@dataclass(frozen=True)
class Trial:
    """One program with what was to become of it; `fault` is "" for a legal one."""

    seed: int
    number: int
    fault: str
    program: Program
    forecast: Forecast


@dataclass(frozen=True)
class Judgement:
    """One program run and judged."""

    trial: Trial
    outcome: Outcome
    verdict: Verdict

    @property
    def is_good(self) -> bool:
        return self.verdict in (Verdict.COMPLETED, Verdict.DETECTED) and not self.outcome.unusable

    @property
    def is_deadlock(self) -> bool:
        """Whether it got stuck for sure and was told so: what is timed."""
        certain = self.trial.forecast.fate is Fate.FAILS
        return certain and self.verdict is Verdict.DETECTED and isinstance(self.outcome.error, DeadlockError)


def trial(seed: int, number: int) -> Trial:
    """The program of this number: an even one is legal, an odd one has a fault."""
    world_size = random.Random(f"{seed}/world {number // PROGRAMS_A_WORLD}").choice(WORLD_SIZES)
    rng = random.Random(f"{seed}/{number}")
    program, fault = draw(world_size, rng), ""
    if number % 2:
        program, fault = plant_any(program, rng)
    return Trial(seed, number, fault, program, forecast(program))


def soak(trials: Iterable[Trial]) -> Iterator[Judgement]:
    """Run trials one after the other; consecutive ones share a world as long as it is usable."""
    world, batch = None, None
    try:
        for each in trials:
            if world is not None and batch != _batch(each):
                world.close()
                world = None
            try:
                world, batch = world or World(each.program.world_size), _batch(each)
                outcome = world.run(each.program.source, each.forecast.stages)
            except StartError as error:
                outcome = Outcome(error, unusable="no world of this size could be started")
            harmless = bool(each.fault) and outcome.error is None  # a group left out harms a later program
            if (outcome.unusable or harmless) and world is not None:
                world.close()
                world = None
            yield Judgement(each, outcome, verdict(each.forecast, outcome.error))
    finally:
        if world is not None:
            world.close()


def _batch(each: Trial) -> tuple[int, int]:
    """Trials with the same one share a world."""
    return each.seed, each.number // PROGRAMS_A_WORLD


def verdict(expected: Forecast, error: Exception | None) -> Verdict:
    """What it says of `fourranks` that a program with this forecast ended with this error."""
    if expected.fate is Fate.COMPLETES:
        return Verdict.COMPLETED if error is None else Verdict.FALSE_ALARM
    if error is None:
        return Verdict.COMPLETED if expected.fate is Fate.OPEN else Verdict.MISSED
    if isinstance(error, CellTimeout):
        return Verdict.MISSED
    if isinstance(error, RankDied):
        return Verdict.DETECTED if expected.reason == "kill" else Verdict.RANK_LOST
    named = {"kill": RankDied, "exception": RankError}.get(expected.reason, (DeadlockError, RankError))
    return Verdict.DETECTED if isinstance(error, named) else Verdict.MISSED
