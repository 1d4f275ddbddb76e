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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from autograder.inside.drivers import hardware_hierarchy as drivers
from autograder.inside.reports import as_many
from autograder.kit.case import Trial, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import MODIFIED, NOT_A_NUMBER, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.student import Outcome
from autograder.kit.values import is_number, kind_of, same
from autograder.topics.hardware_hierarchy import mistakes
from fourranks.figures import published
from fourranks.naming import counted

EXACT = 1e-9  # of formulas: a few roundings of float64
ALMOST = 1e-6  # the same, of float32
FAKE = 0.01  # of a measurement by a fake clock: looking at the clock takes a little, too
JUST_BELOW = 1 - 1e-4  # of the ridge of a GPU, a few hundred: in most cases above its whole number
REAL = 4.0  # times above or below our own slowest and fastest median: other programs may run between


# --- formulas ---------------------------------------------------------------------------------------------


@check()
def matmul_intensity(code: Code, cases: int = 8, seed: int = 0) -> Cases:
    """Check `matmul_intensity` on some shapes and element sizes."""
    draw = random.Random(seed)
    chosen = [(128, 1024, 1024, 8), (1, 4096, 4096, 2), (1, 1, 1, 4), (7, 5, 0, 8)]
    drawn = ((*(draw.randrange(1, 10_000) for _ in "mnk"), draw.choice((1, 2, 4, 8))) for _ in range(cases))
    for m, n, k, size in (*chosen, *drawn):
        operations, elements = 2 * m * n * k, m * k + k * n + m * n
        known = {
            mistakes.MULTIPLY_ADD: operations / 2 / (elements * size),
            mistakes.RESULT_NOT_WRITTEN: operations / ((m * k + k * n) * size) if k else math.nan,
            mistakes.RESULT_READ: operations / ((elements + m * n) * size),
            mistakes.ELEMENT_SIZE: operations / elements,
            mistakes.UPSIDE_DOWN: elements * size / operations if operations else math.nan,
            mistakes.ROUNDED: operations // (elements * size),
        }
        yield _formula((m, n, k, size), operations / (elements * size), known, "m, n, k, bytes: {}")


@check()
def attainable_flops(code: Code, cases: int = 6, seed: int = 0) -> Cases:
    """Check `attainable_flops` on both sides of the ridge and at it."""
    draw = random.Random(seed)
    machines = [(gpu.bf16_flops, gpu.hbm_bandwidth) for gpu in published.GPUS.values()]
    for turn in range(cases):
        peak, bandwidth = draw.choice(machines)
        ridge = peak / bandwidth
        # Well below the ridge, beyond it, nothing but traffic, at the ridge, just below it, and so on.
        far_below, beyond = draw.uniform(0.01, 0.1), draw.uniform(1.1, 50)
        intensity = ridge * (far_below, beyond, 0.0, 1.0, JUST_BELOW)[turn % 5]
        slope = intensity * bandwidth
        known = {mistakes.NOT_CAPPED: slope, mistakes.ALWAYS_THE_PEAK: peak, mistakes.ADDED: slope + peak}
        arguments = (intensity, peak, bandwidth)
        yield _formula(arguments, min(slope, peak), known, "intensity, peak, bandwidth: {}")


@dataclass(frozen=True, kw_only=True)
class _Transfer(Trial):
    """A transfer, with what failing ones may have in common."""

    patterns: ClassVar = mistakes.TRANSFER_PATTERNS

    hops: list[tuple[float, float]]
    pipelined: bool


@check()
def transfer_seconds(code: Code, cases: int = 6, seed: int = 0) -> Cases:
    """Check `transfer_seconds` on ways of 0 to 5 hops, pipelined and not."""
    draw = random.Random(seed)
    for turn in range(cases):
        num_bytes = 0 if turn == 3 else draw.randrange(1, 2**30)
        hops = [
            (draw.uniform(1e-6, 1e-3), draw.uniform(1e8, 1e12)) for _ in range((2, 1, 5, 3, 0, 4)[turn % 6])
        ]
        for pipelined in (False, True):
            yield _transfer_trial(num_bytes, hops, pipelined)


def _transfer_trial(num_bytes: int, hops: list[tuple[float, float]], pipelined: bool) -> Trial:
    latencies = sum(latency for latency, _ in hops)
    each = [num_bytes / bandwidth for _, bandwidth in hops]
    one_by_one, slowest = latencies + sum(each), latencies + max(each, default=0.0)
    expected = slowest if pipelined else one_by_one
    known = {
        mistakes.AS_IF_PIPELINED: slowest,
        mistakes.AS_IF_NOT_PIPELINED: one_by_one,
        mistakes.NO_LATENCY: max(each, default=0.0) if pipelined else sum(each),
        mistakes.ONE_LATENCY: expected - latencies + (hops[0][0] if hops else 0.0),
        mistakes.SLOWEST_HOP_ONLY: max(
            (latency + time for (latency, _), time in zip(hops, each, strict=True)), default=0.0
        ),
        mistakes.BITS: latencies + 8 * (expected - latencies),
        mistakes.FASTEST_HOP: latencies + min(each, default=0.0),
    }
    arguments: tuple[Any, ...] = (num_bytes, hops, True) if pipelined else (num_bytes, hops)
    title = f"{num_bytes:,} bytes over {counted(len(hops), 'hop')}{', pipelined' if pipelined else ''}"
    return _formula(arguments, expected, known, title, kind=_Transfer, hops=hops, pipelined=pipelined)


def _formula(
    arguments: tuple[Any, ...],
    expected: float,
    known: Mapping[Mistake, float],
    title: str,
    kind: type[Trial] = Trial,
    **fields: Any,
) -> Trial:
    """Make a trial of a call that must return `expected`; `known` has the numbers of frequent mistakes."""

    def verify(outcome: Outcome) -> Problem | None:
        got = outcome.value
        if problem := _not_a_number(got):
            return problem
        if not math.isclose(got, expected, rel_tol=EXACT):
            close = (mistake for mistake, value in known.items() if math.isclose(got, value, rel_tol=EXACT))
            almost = math.isclose(got, expected, rel_tol=ALMOST)
            mistake = next(close, mistakes.LOST_DIGITS if almost else mistakes.NUMBER)
            return Problem(mistake, f"{expected:.9g}", f"{got:.9g}")
        if not all(map(_equal, outcome.arguments, arguments)):
            return Problem(MODIFIED, "the arguments as they were", f"{outcome.arguments}")
        return None

    shown = ", ".join(f"{each:.6g}" if isinstance(each, float) else str(each) for each in arguments)
    return on_one_rank(title.format(shown), arguments, verify, kind=kind, size=_size(arguments), **fields)


def _size(arguments: tuple[Any, ...]) -> int:
    """Return how telling a case is: with a zero or nothing in it the least."""
    return 0 if 0 in arguments or [] in arguments else 1


def _equal(got: object, want: object) -> bool:
    """Tell whether values are equal, where a tuple may have come back as a list."""
    if isinstance(want, (list, tuple)):
        return isinstance(got, (list, tuple)) and len(got) == len(want) and all(map(_equal, got, want))
    return same(got, want)


def _not_a_number(value: object) -> Problem | None:
    if is_number(value):
        return None
    return Problem(NOT_A_NUMBER, "a float", kind_of(value))


# --- measure_copy_bandwidth -------------------------------------------------------------------------------


@check()
def measure_copy_bandwidth(
    code: Code, num_bytes: Sequence[int] = (1003, 2**16, 10_000_000), seed: int = 0
) -> Cases:
    """Check `measure_copy_bandwidth` with a fake clock for each of `num_bytes`, then as the machine is.

    Args:
        num_bytes: sizes of copies to try.
    """
    draw = random.Random(seed)
    for turn, size in enumerate(num_bytes):
        yield _on_fake_machine(size, draw.uniform(1e-3, 4e-3), turn)
    largest = max(num_bytes)
    title = f"{largest:,} bytes, on this machine"
    yield on_one_rank(title, (largest,), _near_our_own, drivers.measure_for_real)


def _on_fake_machine(num_bytes: int, copy_seconds: float, turn: int) -> Trial:
    bandwidth = 2 * num_bytes / copy_seconds

    def verify(outcome: Outcome) -> Problem | None:
        seen: drivers.FakeMeasurement = outcome.value
        if problem := _not_a_number(seen.answer) or _wrong_copies(seen.copies, num_bytes):
            return problem
        if not seen.readings:
            expected = "time.perf_counter() before and after each copy"
            return Problem(mistakes.NO_CLOCK, expected, "no clock was read")
        return _wrong_rate(seen.answer, bandwidth, copy_seconds)

    title = f"{num_bytes:,} bytes, on a machine with a fake clock"
    inputs = (num_bytes, copy_seconds, turn)
    return on_one_rank(title, inputs, verify, drivers.measure_with_fake_clock, size=1)


def _wrong_copies(copies: Sequence[int], num_bytes: int) -> Problem | None:
    """Find what is wrong with the copies that were seen, by their bytes."""
    if not copies:
        return Problem(
            mistakes.NO_COPY, f"destination.copy_(source) with {num_bytes:,} bytes", "no such copy"
        )
    size, _ = Counter(copies).most_common(1)[0]
    if size != num_bytes:
        return Problem(mistakes.COPY_SIZE, f"copies of {num_bytes:,} bytes", f"copies of {size:,} bytes")
    if len(copies) < 5:
        return Problem(mistakes.FEW_COPIES, "the median of at least 5 copies", f"{len(copies)} of them")
    return None


def _wrong_rate(answer: Any, bandwidth: float, copy_seconds: float) -> Problem | None:
    def near(value: float) -> bool:
        return math.isclose(answer, value, rel_tol=FAKE)

    if near(bandwidth):
        return None
    units = [8, 4] + [
        sign * power for power in (1e-3, 1e-6, 1e-9, 2**-10, 2**-20, 2**-30, 1e3) for sign in (1, 0.5)
    ]
    if near(bandwidth / 2):
        kind = mistakes.ONE_DIRECTION
    elif near(bandwidth / drivers.CACHED):
        kind = mistakes.FASTEST_COPY
    elif near(copy_seconds) or near(1 / bandwidth) or any(near(bandwidth * unit) for unit in units):
        kind = mistakes.UNIT
    else:
        kind = mistakes.SLOW_COPIES if 0 < answer < bandwidth else mistakes.NUMBER
    return Problem(kind, f"{bandwidth:,.0f} bytes/s", f"{answer:,.9g}")


def _near_our_own(outcome: Outcome) -> Problem | None:
    """Compare each answer with what was measured before and after it: a busy machine slows both down."""
    seen: drivers.RealMeasurements = outcome.value
    answers: list[Any] = as_many(seen.answers, drivers.TURNS)
    if problem := first(map(_not_a_number, answers)):
        return problem
    reference = as_many(seen.reference, drivers.TURNS + 1)
    for answer, *beside in zip(answers, reference[:-1], reference[1:], strict=True):
        if min(beside) / REAL <= answer <= max(beside) * REAL:
            return None
    expected = f"about {min(reference):.2g} to {max(reference):.2g} bytes/s, as we measured"
    return Problem(mistakes.NOT_THIS_MACHINE, expected, f"{statistics.median(answers):.2g} bytes/s")
