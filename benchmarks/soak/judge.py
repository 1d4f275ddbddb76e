"""Draws program after program, runs each on real ranks, and holds what became of it against the forecast."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum

from fourranks import CellTimeout, DeadlockError, RankDied, RankError
from fourranks.errors import StartError

from .faults import plant_any
from .generate import WORLD_SIZES, draw
from .oracle import Fate, Forecast, forecast
from .program import Program
from .world import Outcome, World

TIMEOUT = 60.0  # seconds for one program, which only a hang needs: the longest legal ones take a few
POLLING_TIMEOUT = 8.0  # where nothing else can end a hang
PROGRAMS_A_WORLD = 25  # before it is ended: remains of one program must not harm the next ones


class Verdict(Enum):
    """The meaning of an outcome for `fourranks`."""

    COMPLETED = "completed"
    DETECTED = "detected"
    TIMED_OUT = "timed out"  # as it must: a rank asks again and again whether a call is over
    MISSED = "missed"
    FALSE_ALARM = "false alarm"
    RANK_LOST = "rank lost"  # a process ended that nobody had killed


GOOD = (Verdict.COMPLETED, Verdict.DETECTED, Verdict.TIMED_OUT)


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
        return self.verdict in GOOD and not self.outcome.unusable

    @property
    def is_deadlock(self) -> bool:
        """Whether it got stuck for sure and was told so; such programs are timed."""
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


def soak(trials: Iterable[Trial], worlds: int = 1) -> Iterator[Judgement]:
    """Run trials, in several worlds at a time; consecutive ones share a world as long as it is usable."""
    with ThreadPoolExecutor(worlds) as executor:
        under_way: deque[Future[list[Judgement]]] = deque()
        try:
            for _, batch in itertools.groupby(trials, _batch):
                under_way.append(executor.submit(_judge, list(batch)))
                if len(under_way) > worlds:
                    yield from under_way.popleft().result()
            while under_way:
                yield from under_way.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)


def _judge(batch: list[Trial]) -> list[Judgement]:
    """Run trials in one world; a new one takes its place when it may be harmed."""
    world, judgements = None, []
    try:
        for each in batch:
            try:
                world = world or World(each.program.world_size)
                timeout = POLLING_TIMEOUT if each.forecast.polls else TIMEOUT
                outcome = world.run(each.program.source, each.forecast.stages, timeout)
            except StartError as error:
                outcome = Outcome(error, unusable="no world of this size could be started")
            harmless = bool(each.fault) and outcome.error is None  # a group left out harms a later program
            if (outcome.unusable or harmless) and world is not None:
                world.close()
                world = None
            judgements.append(
                Judgement(each, outcome, verdict(each.forecast, outcome.error, outcome.restarted))
            )
    finally:
        if world is not None:
            world.close()
    return judgements


def _batch(each: Trial) -> tuple[int, int]:
    """Trials with the same one share a world."""
    return each.seed, each.number // PROGRAMS_A_WORLD


def verdict(expected: Forecast, error: Exception | None, restarted: bool = False) -> Verdict:
    """The meaning for `fourranks` of a program's error, given its forecast.

    Args:
        expected: the forecast.
        error: the error, if any.
        restarted: whether all ranks had to be started again to end the program.
    """
    if restarted:
        return Verdict.RANK_LOST
    if expected.fate is Fate.COMPLETES:
        return Verdict.COMPLETED if error is None else Verdict.FALSE_ALARM
    if error is None:
        return Verdict.COMPLETED if expected.fate is Fate.OPEN else Verdict.MISSED
    if isinstance(error, CellTimeout):
        return Verdict.TIMED_OUT if expected.polls else Verdict.MISSED
    if isinstance(error, RankDied):
        return Verdict.DETECTED if expected.reason == "kill" else Verdict.RANK_LOST
    named = {"kill": RankDied, "exception": RankError}.get(expected.reason, (DeadlockError, RankError))
    return Verdict.DETECTED if isinstance(error, named) else Verdict.MISSED
