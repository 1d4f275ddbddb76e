"""Checks of exercise 01: formulas of time and traffic, and a measurement. `topology_listings` has its parser.

All run on one rank. A number that is wrong is compared with what frequent mistakes would give, so that the
hint can name the mistake. A measurement is checked on a machine whose clocks and copies are made up, where
the right answer is known exactly, and against measurements of our own on the real one.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from autograder.inside.drivers import hardware_hierarchy as drivers
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import MODIFIED, Mistake
from autograder.kit.problem import Problem, counted
from autograder.kit.student import Function, Outcome
from autograder.kit.values import kind_of, same
from autograder.topics.hardware_hierarchy.mistakes import (
    ADDED,
    ALWAYS_THE_PEAK,
    AS_IF_NOT_PIPELINED,
    AS_IF_PIPELINED,
    BITS,
    COPY_SIZE,
    ELEMENT_SIZE,
    FASTEST_HOP,
    FEW_COPIES,
    MULTIPLY_ADD,
    NO_CLOCK,
    NO_COPY,
    NO_LATENCY,
    NOT_A_NUMBER,
    NOT_CAPPED,
    NOT_THIS_MACHINE,
    NUMBER,
    ONE_DIRECTION,
    ONE_LATENCY,
    RESULT_NOT_WRITTEN,
    RESULT_READ,
    ROUNDED,
    SLOW_COPIES,
    SLOWEST_HOP_ONLY,
    TRANSFER_PATTERNS,
    UNIT,
    UPSIDE_DOWN,
)
from fourranks.figures import published

Code = Callable | Function
Outcomes = Sequence[Outcome | None]

EXACT = 1e-9  # of formulas: a few roundings of float64
FAKE = 0.01  # of a measurement by a fake clock: looking at the clock takes a little, too
REAL = 4.0  # times above or below our own slowest and fastest median: other programs may run between


# --- formulas ---------------------------------------------------------------------------------------------


def matmul_intensity(code: Code, cases: int = 8, seed: int = 0) -> None:
    """Checks `matmul_intensity` on some shapes and element sizes.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("matmul_intensity", code, _intensity_trials(cases, seed), seed)


def _intensity_trials(cases: int, seed: int) -> Iterator[Trial]:
    draw = random.Random(seed)
    known = [(128, 1024, 1024, 2), (1, 4096, 4096, 2), (1, 1, 1, 4), (7, 5, 0, 8)]
    drawn = ((*(draw.randrange(1, 10_000) for _ in "mnk"), draw.choice((1, 2, 4, 8))) for _ in range(cases))
    for m, n, k, size in (*known, *drawn):
        operations, elements = 2 * m * n * k, m * k + k * n + m * n
        mistakes = {
            MULTIPLY_ADD: operations / 2 / (elements * size),
            RESULT_NOT_WRITTEN: operations / ((m * k + k * n) * size) if k else math.nan,
            RESULT_READ: operations / ((elements + m * n) * size),
            ELEMENT_SIZE: operations / elements,
            UPSIDE_DOWN: elements * size / operations if operations else math.nan,
            ROUNDED: operations // (elements * size),
        }
        yield _formula((m, n, k, size), operations / (elements * size), mistakes, "m, n, k, bytes: {}")


def attainable_flops(code: Code, cases: int = 6, seed: int = 0) -> None:
    """Checks `attainable_flops` on both sides of the ridge and at it.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("attainable_flops", code, _roofline_trials(cases, seed), seed)


def _roofline_trials(cases: int, seed: int) -> Iterator[Trial]:
    draw = random.Random(seed)
    machines = [(gpu.bf16_flops, gpu.hbm_bandwidth) for gpu in published.GPUS.values()]
    for turn in range(cases):
        peak, bandwidth = draw.choice(machines)
        ridge = peak / bandwidth
        # Below the ridge, beyond it, nothing but traffic, at the ridge, and so on.
        intensity = ridge * (draw.uniform(0.01, 0.9), draw.uniform(1.1, 50), 0.0, 1.0)[turn % 4]
        slope = intensity * bandwidth
        mistakes = {
            NOT_CAPPED: slope,
            ALWAYS_THE_PEAK: peak,
            ADDED: slope + peak,
        }
        yield _formula(
            (intensity, peak, bandwidth), min(slope, peak), mistakes, "intensity, peak, bandwidth: {}"
        )


def transfer_seconds(code: Code, cases: int = 6, seed: int = 0) -> None:
    """Checks `transfer_seconds` on ways of 0 to 5 hops, pipelined and not.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("transfer_seconds", code, _transfer_trials(cases, seed), seed)


@dataclass(frozen=True, kw_only=True)
class _Transfer(Trial):
    """A transfer, with what failing ones may have in common."""

    patterns: ClassVar = TRANSFER_PATTERNS

    @property
    def hops(self) -> list:
        return self.inputs[0][1]

    @property
    def pipelined(self) -> bool:
        return len(self.inputs[0]) > 2 and self.inputs[0][2]


def _transfer_trials(cases: int, seed: int) -> Iterator[Trial]:
    draw = random.Random(seed)
    for turn in range(cases):
        num_bytes = 0 if turn == 3 else draw.randrange(1, 2**30)
        hops = [
            (draw.uniform(1e-6, 1e-3), draw.uniform(1e8, 1e12)) for _ in range((2, 1, 5, 3, 0, 4)[turn % 6])
        ]
        for arguments in ((num_bytes, hops), (num_bytes, hops, True)):
            yield _transfer_trial(*arguments)


def _transfer_trial(num_bytes: int, hops: list[tuple[float, float]], pipelined: bool = False) -> Trial:
    latencies = sum(latency for latency, _ in hops)
    each = [num_bytes / bandwidth for _, bandwidth in hops]
    one_by_one, slowest = latencies + sum(each), latencies + max(each, default=0.0)
    expected = slowest if pipelined else one_by_one
    mistakes = {
        AS_IF_PIPELINED: slowest,
        AS_IF_NOT_PIPELINED: one_by_one,
        NO_LATENCY: max(each, default=0.0) if pipelined else sum(each),
        ONE_LATENCY: expected - latencies + (hops[0][0] if hops else 0.0),
        SLOWEST_HOP_ONLY: max(
            (latency + time for (latency, _), time in zip(hops, each, strict=True)), default=0.0
        ),
        BITS: latencies + 8 * (expected - latencies),
        FASTEST_HOP: latencies + min(each, default=0.0),
    }
    arguments = (num_bytes, hops, True) if pipelined else (num_bytes, hops)
    title = f"{num_bytes:,} bytes over {counted(len(hops), 'hop')}{', pipelined' if pipelined else ''}"
    return _formula(arguments, expected, mistakes, title, _Transfer)


def _formula(
    arguments: tuple,
    expected: float,
    mistakes: Mapping[Mistake, float],
    title: str,
    kind: type[Trial] = Trial,
) -> Trial:
    """A call that must return `expected`; `mistakes` has the numbers of frequent mistakes."""

    def verify(outcomes: Outcomes) -> Problem | None:
        outcome = outcomes[0]
        if problem := _not_a_number(outcome.value):
            return problem
        if not math.isclose(outcome.value, expected, rel_tol=EXACT):
            close = (
                each for each, value in mistakes.items() if math.isclose(outcome.value, value, rel_tol=EXACT)
            )
            return Problem(next(close, NUMBER), f"{expected:.9g}", f"{outcome.value:.9g}")
        if not all(map(_equal, outcome.arguments, arguments)):
            return Problem(MODIFIED, "the arguments as they were", f"{outcome.arguments}")
        return None

    shown = ", ".join(
        f"{argument:.6g}" if isinstance(argument, float) else str(argument) for argument in arguments
    )
    return kind(
        title=title.format(shown),
        inputs=[arguments],
        verify=verify,
        backends=("gloo",),
        size=_size(arguments),
    )


def _size(arguments: tuple) -> int:
    """Cases with a zero or nothing in them are the least telling ones."""
    return 0 if 0 in arguments or [] in arguments else 1


def _equal(got: object, want: object) -> bool:
    """Equal, where a tuple may have come back as a list."""
    if isinstance(want, (list, tuple)):
        return isinstance(got, (list, tuple)) and len(got) == len(want) and all(map(_equal, got, want))
    return same(got, want)


def _not_a_number(value: object) -> Problem | None:
    if type(value) in (int, float):
        return None
    return Problem(NOT_A_NUMBER, "a float", kind_of(value))


# --- measure_copy_bandwidth -------------------------------------------------------------------------------


def measure_copy_bandwidth(
    code: Code, num_bytes: Sequence[int] = (1003, 2**16, 10_000_000), seed: int = 0
) -> None:
    """Checks `measure_copy_bandwidth` with a fake clock for each of `num_bytes`, then as the machine is.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("measure_copy_bandwidth", code, _measurement_trials(num_bytes, random.Random(seed)), seed)


def _measurement_trials(sizes: Sequence[int], draw: random.Random) -> Iterator[Trial]:
    for size in sizes:
        yield _on_fake_machine(size, draw.uniform(1e-3, 4e-3))
    largest = max(sizes)
    yield Trial(
        title=f"{largest:,} bytes, on this machine",
        inputs=[(largest,)],
        driver=drivers.measure_for_real,
        verify=_near_our_own,
        backends=("gloo",),
    )


def _on_fake_machine(num_bytes: int, copy_seconds: float) -> Trial:
    bandwidth = 2 * num_bytes / copy_seconds

    def verify(outcomes: Outcomes) -> Problem | None:
        seen = outcomes[0].value
        problem = _not_a_number(seen["answer"]) or _wrong_copies(seen["copies"], num_bytes)
        if problem:
            return problem
        if not seen["readings"]:
            return Problem(NO_CLOCK, "time.perf_counter() before and after each copy", "no clock was read")
        return _wrong_rate(seen["answer"], bandwidth, copy_seconds)

    return Trial(
        title=f"{num_bytes:,} bytes, on a machine with a fake clock",
        inputs=[(num_bytes, copy_seconds)],
        driver=drivers.measure_with_fake_clock,
        verify=verify,
        backends=("gloo",),
        size=1,
    )


def _wrong_copies(copies: Sequence[int], num_bytes: int) -> Problem | None:
    """What is wrong with the copies that were seen, by their bytes."""
    if not copies:
        return Problem(NO_COPY, f"destination.copy_(source) with {num_bytes:,} bytes", "no such copy")
    size, _ = Counter(copies).most_common(1)[0]
    if size != num_bytes:
        return Problem(COPY_SIZE, f"copies of {num_bytes:,} bytes", f"copies of {size:,} bytes")
    if len(copies) < 5:
        return Problem(
            FEW_COPIES,
            "the median of at least 5 copies",
            f"{len(copies)} of them",
        )
    return None


def _wrong_rate(answer: float, bandwidth: float, copy_seconds: float) -> Problem | None:
    def near(value: float) -> bool:
        return math.isclose(answer, value, rel_tol=FAKE)

    if near(bandwidth):
        return None
    units = [8, 4] + [
        sign * power for power in (1e-3, 1e-6, 1e-9, 2**-10, 2**-20, 2**-30, 1e3) for sign in (1, 0.5)
    ]
    if near(bandwidth / 2):
        kind = ONE_DIRECTION
    elif near(copy_seconds) or any(near(bandwidth * unit) for unit in units):
        kind = UNIT
    else:
        kind = SLOW_COPIES if 0 < answer < bandwidth else NUMBER
    return Problem(kind, f"{bandwidth:,.0f} bytes/s", f"{answer:,.9g}")


def _near_our_own(outcomes: Outcomes) -> Problem | None:
    seen = outcomes[0].value
    for answer in seen["answers"]:
        if problem := _not_a_number(answer):
            return problem
    slowest, fastest = min(seen["reference"]), max(seen["reference"])
    if any(slowest / REAL <= answer <= fastest * REAL for answer in seen["answers"]):
        return None
    expected = f"about {slowest:.2g} to {fastest:.2g} bytes/s, as we measured"
    return Problem(NOT_THIS_MACHINE, expected, f"{statistics.median(seen['answers']):.2g} bytes/s")
