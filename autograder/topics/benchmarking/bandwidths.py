"""Checks of exercise 03: the formulas that make bandwidths and predictions of measured times.

Pure functions, called with drawn numbers; each frequent mistake has an answer of its own, by which it is
known.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from autograder.inside.drivers import benchmarking as drivers
from autograder.kit.case import Trial, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import MODIFIED, NOT_A_NUMBER, WRONG_TYPE, Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Outcome
from autograder.kit.values import is_number, kind_of, same
from autograder.topics.benchmarking import mistakes
from autograder.topics.benchmarking.banned import BANNED
from fourranks.figures import alpha_beta
from fourranks.plan import collectives
from fourranks.trace import bandwidth

Floats = Sequence[float]


class MistakenAnswer(NamedTuple):
    """The answer of one mistake."""

    mistake: Mistake
    answer: float
    unit: str = ""  # that it is in, if not the one that is asked for


COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "sendrecv",
    "hypercube",
)
_EXACT, _EXACT_FIT = 1e-6, 1e-4  # relative; loose enough for float32, and for an ill-conditioned system
_REPEATS, _CLOSE = 4, 0.05  # measurements of each size, and how close a fit of them must come


@check(banned=BANNED)
def algbw(function: Code, seed: int = 0) -> Cases:
    """Check `algbw` on a few sizes and times."""
    generator = random.Random(seed)
    drawn = [(_size(generator), generator.uniform(1e-5, 1.0)) for _ in range(3)]
    for size, seconds in (*drawn, (7, 2.0)):  # the last is no whole number
        wrong = [MistakenAnswer(mistakes.RECIPROCAL, seconds / size), *_units(size / seconds)]
        yield _number("algbw", (size, seconds), size / seconds, wrong, size=1)


@check(banned=BANNED)
def busbw(
    function: Code,
    world_sizes: Sequence[int] = (1, 2, 3, 4, 8),
    collectives: Sequence[str] = COLLECTIVES,
    seed: int = 0,
) -> Cases:
    """Check `busbw` for every operation of nccl-tests at every world size, and that others are refused.

    Args:
        collectives: names of the operations.
    """
    generator = random.Random(seed)
    for world_size in world_sizes:
        for name in collectives:
            yield _busbw(generator, name, world_size)
    arguments = ("all_gossip", 1000, 1.0, 4)
    yield on_one_rank(f"busbw{arguments!r}", arguments, _refused, drivers.error)


def _busbw(generator: random.Random, collective: str, n: int) -> Trial:
    size, seconds = _size(generator), generator.uniform(1e-5, 1.0)
    answer = bandwidth.busbw(collective, size, seconds, n)
    plain = size / seconds
    share_of_chunks = (
        [MistakenAnswer(mistakes.ALL_OF_S_IS_SENT, plain * (n - 1) / n)] if answer == plain else []
    )
    wrong = [
        *share_of_chunks,
        MistakenAnswer(mistakes.N_MINUS_1_DROPPED, 2 * plain / n),
        MistakenAnswer(mistakes.ALGBW, plain),
        MistakenAnswer(mistakes.N_TIMES_TOO_LARGE, 2 * n * plain),
        MistakenAnswer(mistakes.PART_OF_ONE_RANK, answer / n),
        MistakenAnswer(mistakes.TWICE, 2 * answer),
        MistakenAnswer(mistakes.HALF, answer / 2),
        *_units(answer),
    ]
    return _number("busbw", (collective, size, seconds, n), answer, wrong, size=n)


def _refused(outcome: Outcome) -> Problem | None:
    raised: str = outcome.value
    if raised == "ValueError":
        return None
    return Problem(mistakes.UNKNOWN_ACCEPTED, "a ValueError", raised or "no exception")


@check(banned=BANNED)
def corrected_reduce_scatter_busbw(
    function: Code, world_sizes: Sequence[int] = (2, 3, 4, 8), seed: int = 0
) -> Cases:
    """Check `corrected_reduce_scatter_busbw`: the lecture's figures, and others, in bytes/s and in GB/s.

    A single rank sends nothing, so there is no figure of one to correct.
    """
    generator = random.Random(seed)
    for turn, n in enumerate(world_sizes):
        reported = 70e9 if n == 4 else generator.uniform(1, 400) * (1.0, 1e9)[turn % 2]
        wrong = [
            MistakenAnswer(mistakes.DIVIDED, reported / n),
            MistakenAnswer(mistakes.FACTOR_OF_ALL_REDUCE, reported * 2 * (n - 1) / n),
            MistakenAnswer(mistakes.FACTOR_OF_ALL_REDUCE, reported * (n - 1)),
            MistakenAnswer(mistakes.FACTOR_OF_ALL_REDUCE, reported * n / max(1, n - 1)),
            MistakenAnswer(mistakes.UNCORRECTED, reported),
        ]
        yield _number("corrected_reduce_scatter_busbw", (reported, n), n * reported, wrong, size=n)


@check(banned=BANNED)
def crossover_bytes(
    function: Code, world_sizes: Sequence[int] = (2, 3, 4, 5, 8, 16, 64), seed: int = 0
) -> Cases:
    """Check `crossover_bytes`: at its answer ring and tree take equally long."""
    generator = random.Random(seed)
    for n in world_sizes:
        alpha, beta = generator.uniform(1e-6, 1e-3), 1 / generator.uniform(1e8, 1e11)
        answer = alpha_beta.crossover_bytes(n, alpha, beta)
        rounds, share = collectives.rounds(n), (n - 1) / n
        not_rounded, rounded_down = (
            (n - 1 - real_rounds) * alpha / ((real_rounds - share) * beta)
            for real_rounds in (math.log2(n), math.floor(math.log2(n)))
        )
        whole = (n - 1 - rounds) * alpha / ((rounds - (n - 1)) * beta) if answer else -1.0
        wrong = [
            MistakenAnswer(mistakes.ROUNDS_NOT_ROUNDED, not_rounded),
            MistakenAnswer(mistakes.ROUNDS_NOT_ROUNDED, rounded_down),
            MistakenAnswer(mistakes.PIPELINED_TREE, (n - 1 - rounds) * alpha / ((1 - share) * beta)),
            MistakenAnswer(mistakes.RECIPROCAL, 1 / answer if answer else -1.0),
            MistakenAnswer(mistakes.BETA_AS_A_RATE, answer * beta**2),
            MistakenAnswer(mistakes.LATENCY_LEFT_OUT, alpha / beta),
            MistakenAnswer(mistakes.WHOLE_MESSAGES, whole),
        ]
        nothing = 0.0 if answer else 1e-9 * alpha / beta
        yield _number("crossover_bytes", (n, alpha, beta), answer, wrong, size=n, nothing=nothing)


@check(banned=BANNED)
def fit_alpha_beta(function: Code, seed: int = 0) -> Cases:
    """Check `fit_alpha_beta` on exact times, in any order, and on noisy ones over six decades of sizes."""
    generator = random.Random(seed)
    sizes = [float(4**exponent) for exponent in range(5, 17)]
    for link, alpha, beta in (("Gloo", 0.8e-3, 1 / 0.5e9), ("NVLink", 12e-6, 1 / 370e9)):
        line = (alpha, beta)
        exact = [alpha + beta * size for size in sizes]
        shuffled = generator.sample(list(zip(sizes, exact, strict=True)), len(sizes))
        noisy = _noisy(generator, _REPEATS * sizes, _REPEATS * exact, line)
        title = f"{link}, {_REPEATS} times each size from 1 KiB to 4 GiB, 10 % noise"
        yield _fit(f"{link}, two exact times", sizes[::11], exact[::11], line, _EXACT_FIT)
        yield _fit(f"{link}, exact times in any order", *_columns(shuffled), line, _EXACT_FIT)
        yield _fit(title, _REPEATS * sizes, noisy, line, _CLOSE)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    return [size for size, _ in points], [seconds for _, seconds in points]


def _fit(title: str, sizes: Floats, seconds: Floats, answer: tuple[float, float], tolerance: float) -> Trial:
    def verify(outcome: Outcome) -> Problem | None:
        got = outcome.value
        if not isinstance(got, (tuple, list)) or len(got) != 2 or not all(map(is_number, got)):
            return Problem(WRONG_TYPE, "a tuple of two floats", kind_of(got))
        if not _near(got, answer, tolerance):
            expected = "alpha = {:.3g} s, beta = {:.3g} s/byte".format(*answer)
            mistake = _fit_mistake(got, answer, sizes, seconds)
            return Problem(mistake, expected, "{:.3g} and {:.3g}".format(*got))
        if not same(outcome.arguments, list(arguments)):
            return Problem(MODIFIED, "`num_bytes` and `seconds` as they were", "others")
        return None

    arguments = list(sizes), list(seconds)
    return on_one_rank(title, arguments, verify, size=len(sizes))


def _fit_mistake(got: Floats, answer: tuple[float, float], sizes: Floats, seconds: Floats) -> Mistake:
    absolute = _absolute_fit(sizes, seconds)
    for alpha, beta in (answer, absolute):
        if _near(got, (beta, alpha), 0.1):
            return mistakes.SWAPPED
        if _near(got, (alpha, 1 / beta), 0.1):
            return mistakes.A_RATE
    if got[0] == 0 or math.isclose(got[0], min(seconds)):
        return mistakes.NO_FIT_OF_ALPHA
    if _near(got, _ends(sizes, seconds), _EXACT):
        return mistakes.TWO_POINTS
    return mistakes.ABSOLUTE_ERRORS if _near(got, absolute, 0.02) else mistakes.ANOTHER_FIT


def _noisy(
    generator: random.Random, sizes: Floats, exact: Floats, answer: tuple[float, float]
) -> list[float]:
    """Draw times that give the answer to a fit of relative errors, but not of absolute ones or two points."""
    while True:
        noisy = [seconds * generator.uniform(0.9, 1.1) for seconds in exact]
        wrong = (_absolute_fit(sizes, noisy), _ends(sizes, noisy))
        good = _near(alpha_beta.fit_alpha_beta(sizes, noisy), answer, 0.5 * _CLOSE)
        if good and not any(_near(fit[:1], answer[:1], 1.5 * _CLOSE) for fit in wrong):
            return noisy


def _near(got: Floats, want: Floats, tolerance: float) -> bool:
    return all(math.isclose(*pair, rel_tol=tolerance) for pair in zip(got, want, strict=True))


def _ends(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Return the line through the first and the last point."""
    beta = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    return seconds[0] - beta * sizes[0], beta


def _absolute_fit(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Fit by ordinary least squares, which the largest sizes decide alone."""
    beta, alpha = statistics.linear_regression(sizes, seconds)
    return alpha, beta


def _size(generator: random.Random) -> int:
    return generator.randrange(1, 1 << 30)


def _units(answer: float) -> list[MistakenAnswer]:
    """Return the right number in other units."""
    factors = {"GB/s": 1e9, "GiB/s": 2**30, "MB/s": 1e6, "MiB/s": 2**20}
    mistake = mistakes.NOT_IN_BYTES_PER_SECOND
    return [MistakenAnswer(mistake, answer / factor, unit) for unit, factor in factors.items()]


def _number(
    name: str,
    arguments: tuple[Any, ...],
    answer: float,
    wrong: Sequence[MistakenAnswer],
    size: int,
    nothing: float = 0.0,
) -> Trial:
    """Make a trial of a call that has to return this number; differences of `nothing` do not count."""

    def equal(value: float, other: float) -> bool:
        return math.isclose(value, other, rel_tol=_EXACT, abs_tol=nothing)

    def verify(outcome: Outcome) -> Problem | None:
        got = outcome.value
        if not is_number(got):
            return Problem(NOT_A_NUMBER, "a float", kind_of(got))
        if equal(got, answer):
            return None
        known = (each for each in wrong if equal(got, each.answer) and not equal(each.answer, answer))
        found = next(known, MistakenAnswer(mistakes.ANOTHER_VALUE, got))
        unit = f" (in {found.unit}?)" if found.unit else ""
        return Problem(found.mistake, f"{answer:.6g}", f"{got:.6g}{unit}")

    return on_one_rank(f"{name}({', '.join(map(_argument, arguments))})", arguments, verify, size=size)


def _argument(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else repr(value)
