"""Check of exercise 07's simulation: bubbles of known schedules, of drawn ones, of some that never end."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from autograder.inside.drivers.pipeline_schedules import ReturnedSchedule
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import NOT_A_NUMBER, Mistake
from autograder.kit.problem import Problem
from autograder.kit.values import apart, is_number, kind_of
from autograder.topics.pipeline_parallelism import mistakes
from autograder.topics.pipeline_parallelism import reference_schedules as reference
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.reference_schedules import Step, in_words
from autograder.topics.pipeline_parallelism.schedules import Schedule, described, pure_trial
from fourranks.naming import counted

EXACT = 1e-9  # a few roundings of float64
ROUNDED = 1e-5  # relative: many of float32


@check(banned=BANNED)
def bubble_fraction(
    code: Code, num_stages: Sequence[int] = (1, 2, 3, 4, 8), num_chunks: Sequence[int] = (1,), seed: int = 0
) -> Cases:
    """Check `bubble_fraction` on known schedules, on drawn ones, and on some that never end.

    Args:
        num_chunks: how many stages a rank has; more than 1 makes interleaved schedules.
    """
    draw = random.Random(seed)
    for stages in num_stages:
        for chunks in num_chunks:
            many = stages * draw.randrange(2, 4)
            if chunks > 1:
                yield _bubble_trial("interleaved", _interleaved(stages, many, chunks), (1.0, 2.0))
            else:
                yield _bubble_trial("GPipe", _all(reference.gpipe, stages, many), (1.0, 2.0))
                yield _bubble_trial("1F1B", _all(reference.one_f_one_b, stages, many), (0.5, 0.75))
                yield _bubble_trial("one microbatch", _all(reference.gpipe, stages, 1), (2.0, 1.0))
            times = draw.uniform(0.1, 2), draw.uniform(0.1, 4)
            yield _bubble_trial("any order", _drawn(stages, many, chunks, draw), times)
    if num_chunks[0] == 1:
        yield from _stuck_trials()


def _all(schedule: Callable[[int, int, int], Schedule], stages: int, microbatches: int) -> list[Schedule]:
    return [schedule(stage, stages, microbatches) for stage in range(stages)]


def _interleaved(stages: int, microbatches: int, chunks: int) -> list[Schedule]:
    return [reference.interleaved(rank, stages, microbatches, chunks) for rank in range(stages)]


def _drawn(ranks: int, microbatches: int, chunks: int, draw: random.Random) -> list[Schedule]:
    """Draw schedules that the ranks can run, step by step among those that are possible."""
    num_stages = ranks * chunks
    possible = [("F", microbatch, 0) for microbatch in range(microbatches)]
    schedules: list[Schedule] = [[] for _ in range(ranks)]
    while possible:
        kind, microbatch, stage = possible.pop(draw.randrange(len(possible)))
        schedules[stage % ranks].append((kind, microbatch))
        if kind == "F":
            last = stage == num_stages - 1
            possible.append(("B", microbatch, stage) if last else ("F", microbatch, stage + 1))
        elif stage:
            possible.append(("B", microbatch, stage - 1))
    return schedules


def _bubble_trial(name: str, schedules: list[Schedule], times: tuple[float, float]) -> Trial:
    want = reference.bubble_fraction(schedules, *times)
    stages, microbatches = len(schedules), 1 + max(microbatch for _, microbatch in schedules[0])
    title = f"{name}, {counted(stages, 'rank')}, {in_words(microbatches)}"
    wrong = _wrong_bubbles(schedules, times, want)
    calls = [(schedules, *times) if times != (1.0, 2.0) else (schedules,)]
    return pure_trial(title, calls, lambda answers: _wrong_bubble(answers[0], want, wrong), size=stages)


def _wrong_bubbles(
    schedules: list[Schedule], times: tuple[float, float], want: float
) -> dict[Mistake, float]:
    """Return what frequent mistakes would answer."""
    busy, total = reference.busy_and_total(schedules, *times)
    stages, microbatches = len(schedules), len(schedules[0]) // 2
    return {
        mistakes.SHARE_OF_THE_COMPUTATION: want / (1 - want),
        mistakes.SHARE_OF_TIME_THAT_IS_BUSY: 1 - want,
        mistakes.BUBBLE_IN_SECONDS: total - busy[0],
        mistakes.BUBBLE_IN_PERCENT: 100 * want,
        mistakes.ALL_STEPS_ALIKE: reference.bubble_fraction(schedules, 1, 1),
        mistakes.DEFAULT_TIMES: reference.bubble_fraction(schedules, 1, 2),
        mistakes.FORMULA_NOT_SIMULATION: (stages - 1) / (microbatches + stages - 1),
    }


def _wrong_bubble(answer: ReturnedSchedule, want: float, wrong: dict[Mistake, float]) -> Problem | None:
    expected, value = f"{want:.6g}", answer.value
    if answer.refused is not None:
        return Problem(mistakes.POSSIBLE_SCHEDULES_REFUSED, expected, described(answer))
    if not is_number(value):
        return Problem(NOT_A_NUMBER, f"{expected}, a float", kind_of(value))
    if abs(value - want) <= EXACT:
        return None
    made = (each for each, mistaken in wrong.items() if abs(value - mistaken) <= EXACT * (1 + abs(mistaken)))
    rounded = math.isclose(value, want, rel_tol=ROUNDED)
    otherwise = mistakes.ROUNDED_BUBBLE if rounded else mistakes.WRONG_BUBBLE
    return Problem(next(made, otherwise), *apart(want, value))


def _stuck_trials() -> Iterator[Trial]:
    """Make trials of schedules with steps that can never begin, of which an error names one."""
    f0, b0, f1, b1 = ("F", 0), ("B", 0), ("F", 1), ("B", 1)
    for title, schedules, stuck in (
        ("a backward before its forward", [[b0, f0]], {b0, f0}),
        ("stages that disagree", [[f0, b0, f1, b1], [f1, b1, f0, b0]], {f0, b0, f1, b1}),
        ("a step that is missing", [[f0, b0], [f0]], {b0}),
        ("a microbatch that never comes", [[f0, b0], [f0, b0, f1, b1]], {f1, b1}),
    ):
        expected = f"a ValueError that names {' or '.join(kind + str(at) for kind, at in sorted(stuck))}"
        verify = partial(_unnoticed, stuck, expected)
        yield pure_trial(title, [(schedules,)], verify, size=0, answered=expected)


def _unnoticed(stuck: Collection[Step], expected: str, answers: list[ReturnedSchedule]) -> Problem | None:
    message = answers[0].refused
    if message is None:
        return Problem(mistakes.ENDLESS_WAIT_UNNOTICED, expected, described(answers[0]))
    if any(_is_named(*step, message) for step in stuck):
        return None
    return Problem(mistakes.ENDLESS_WAIT_UNNAMED, expected, message or "a ValueError without a text")


def _is_named(kind: str, microbatch: int, message: str) -> bool:
    """Tell whether a message names a step, as "B0", "('B', 0)" or "the backward of microbatch 0"."""
    word = {"F": "forward", "B": "backward"}[kind]
    named = re.search(rf"(?<![A-Za-z]){kind}(?![A-Za-z])|(?i:{word})", message)
    return bool(named and re.search(rf"(?<!\d){microbatch}(?!\d)", message))
