"""Checks of exercise 03: the formulas that make bandwidths and predictions of measured times.

Pure functions, called with drawn numbers;
each frequent mistake has an answer of its own, by which it is known.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from autograder.inside.drivers import benchmarking as drivers
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import WRONG_TYPE, Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Function, Outcome
from autograder.kit.values import kind_of
from autograder.topics.benchmarking.banned import BANNED
from autograder.topics.benchmarking.mistakes import (
    A_RATE,
    ABSOLUTE_ERRORS,
    ALGBW,
    ANOTHER_VALUE,
    BETA_AS_A_RATE,
    DIVIDED,
    FACTOR_OF_ALL_REDUCE,
    HALF,
    LATENCY_LEFT_OUT,
    N_MINUS_1_DROPPED,
    N_TIMES_TOO_LARGE,
    NO_FIT_OF_ALPHA,
    NOT_IN_BYTES_PER_SECOND,
    PART_OF_ONE_RANK,
    RECIPROCAL,
    ROUNDS_NOT_ROUNDED,
    SWAPPED,
    TWICE,
    TWO_POINTS,
    UNCORRECTED,
    UNKNOWN_ACCEPTED,
    WHOLE_MESSAGES,
)
from fourranks.figures import alpha_beta
from fourranks.trace import bandwidth

Floats = Sequence[float]


class Wrong(NamedTuple):
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
_PAIRS = [[a, b] for a in (int, float) for b in (int, float)]
_REPEATS, _CLOSE = 4, 0.05  # measurements of each size, and how close a fit of them must come


def algbw(function: Callable | Function, seed: int = 0) -> None:
    """Checks `algbw` on a few sizes and times."""
    generator = random.Random(seed)
    cases = []
    for _ in range(3):
        size, seconds = _size(generator), generator.uniform(1e-5, 1.0)
        wrong = [Wrong(RECIPROCAL, seconds / size), *_units(size / seconds)]
        cases.append(_number("algbw", (size, seconds), size / seconds, wrong, size=1))
    judge("algbw", function, cases, seed, BANNED)


def busbw(
    function: Callable | Function,
    world_sizes: Sequence[int] = (1, 2, 3, 4, 8),
    collectives: Sequence[str] = COLLECTIVES,
    seed: int = 0,
) -> None:
    """Checks `busbw` for every operation of nccl-tests at every world size, and that others are refused."""
    generator = random.Random(seed)
    cases = [_busbw(generator, name, n) for n in world_sizes for name in collectives]
    cases.append(_refused(("all_gossip", 1000, 1.0, 4)))
    judge("busbw", function, cases, seed, BANNED)


def _busbw(generator: random.Random, collective: str, n: int) -> Trial:
    size, seconds = _size(generator), generator.uniform(1e-5, 1.0)
    answer = bandwidth.busbw(collective, size, seconds, n)
    plain = size / seconds
    wrong = [
        Wrong(N_MINUS_1_DROPPED, 2 * plain / n),
        Wrong(ALGBW, plain),
        Wrong(N_TIMES_TOO_LARGE, 2 * n * plain),
        Wrong(PART_OF_ONE_RANK, answer / n),
        Wrong(TWICE, 2 * answer),
        Wrong(HALF, answer / 2),
        *_units(answer),
    ]
    return _number("busbw", (collective, size, seconds, n), answer, wrong, size=n)


def _refused(arguments: tuple) -> Trial:
    def verify(outcomes: Sequence[Outcome | None]) -> Problem | None:
        raised = outcomes[0].value
        if raised == "ValueError":
            return None
        return Problem(UNKNOWN_ACCEPTED, "a ValueError", raised or "no exception")

    title = f"busbw{arguments!r}"
    return Trial(title=title, inputs=[arguments], driver=drivers.error, verify=verify, backends=("gloo",))


def corrected_reduce_scatter_busbw(
    function: Callable | Function, world_sizes: Sequence[int] = (1, 2, 4, 8), seed: int = 0
) -> None:
    """Checks `corrected_reduce_scatter_busbw`: the lecture's figures, and others."""
    generator = random.Random(seed)
    cases = []
    for n in world_sizes:
        reported = 70e9 if n == 4 else generator.uniform(1e9, 400e9)
        wrong = [
            Wrong(DIVIDED, reported / n),
            Wrong(FACTOR_OF_ALL_REDUCE, reported * 2 * (n - 1) / n),
            Wrong(FACTOR_OF_ALL_REDUCE, reported * (n - 1)),
            Wrong(FACTOR_OF_ALL_REDUCE, reported * n / max(1, n - 1)),
            Wrong(UNCORRECTED, reported),
        ]
        cases.append(_number("corrected_reduce_scatter_busbw", (reported, n), n * reported, wrong, size=n))
    judge("corrected_reduce_scatter_busbw", function, cases, seed, BANNED)


def crossover_bytes(
    function: Callable | Function, world_sizes: Sequence[int] = (2, 3, 4, 5, 8, 16, 64), seed: int = 0
) -> None:
    """Checks `crossover_bytes`: at its answer ring and tree take equally long."""
    generator = random.Random(seed)
    cases = []
    for n in world_sizes:
        alpha, beta = generator.uniform(1e-6, 1e-3), 1 / generator.uniform(1e8, 1e11)
        answer = alpha_beta.crossover_bytes(n, alpha, beta)
        rounds, share = alpha_beta.rounds(n), (n - 1) / n
        real_rounds = math.log2(n)
        wrong = [
            Wrong(ROUNDS_NOT_ROUNDED, (n - 1 - real_rounds) * alpha / ((real_rounds - share) * beta)),
            Wrong(RECIPROCAL, 1 / answer if answer else -1.0),
            Wrong(BETA_AS_A_RATE, answer * beta**2),
            Wrong(LATENCY_LEFT_OUT, alpha / beta),
            Wrong(
                WHOLE_MESSAGES,
                (n - 1 - rounds) * alpha / ((rounds - (n - 1)) * beta) if answer else -1.0,
            ),
        ]
        nothing = 0.0 if answer else 1e-9 * alpha / beta
        cases.append(_number("crossover_bytes", (n, alpha, beta), answer, wrong, size=n, nothing=nothing))
    judge("crossover_bytes", function, cases, seed, BANNED)


def fit_alpha_beta(function: Callable | Function, seed: int = 0) -> None:
    """Checks `fit_alpha_beta` on exact times, in any order, and on noisy ones over six decades of sizes."""
    judge("fit_alpha_beta", function, _fits(random.Random(seed)), seed, BANNED)


def _fits(generator: random.Random) -> Iterator[Trial]:
    sizes = [float(4**exponent) for exponent in range(5, 17)]
    for link, alpha, beta in (("Gloo", 0.8e-3, 1 / 0.5e9), ("NVLink", 12e-6, 1 / 370e9)):
        exact = [alpha + beta * size for size in sizes]
        shuffled = generator.sample(list(zip(sizes, exact, strict=True)), len(sizes))
        noisy = _noisy(generator, _REPEATS * sizes, _REPEATS * exact, (alpha, beta))
        title = f"{link}, {_REPEATS} times each size from 1 KiB to 4 GiB, 10 % noise"
        yield _fit(f"{link}, two exact times", sizes[::11], exact[::11], (alpha, beta), _EXACT_FIT)
        yield _fit(
            f"{link}, exact times in any order", *zip(*shuffled, strict=True), (alpha, beta), _EXACT_FIT
        )
        yield _fit(title, _REPEATS * sizes, noisy, (alpha, beta), _CLOSE)


def _fit(title: str, sizes: Floats, seconds: Floats, answer: tuple[float, float], tolerance: float) -> Trial:
    def verify(outcomes: Sequence[Outcome | None]) -> Problem | None:
        got = outcomes[0].value
        if not isinstance(got, (tuple, list)) or [type(number) for number in got] not in _PAIRS:
            return Problem(WRONG_TYPE, "a tuple of two floats", kind_of(got))
        if _near(got, answer, tolerance):
            return None
        expected = "alpha = {:.3g} s, beta = {:.3g} s/byte".format(*answer)
        return Problem(_fit_mistake(got, answer, sizes, seconds), expected, "{:.3g} and {:.3g}".format(*got))

    inputs = [(list(sizes), list(seconds))]
    return Trial(
        title=title,
        inputs=inputs,
        driver=drivers.call,
        verify=verify,
        backends=("gloo",),
        size=len(sizes),
    )


def _fit_mistake(got: Floats, answer: tuple[float, float], sizes: Floats, seconds: Floats) -> Mistake:
    alpha, beta = answer
    if _near(got, (beta, alpha), 0.1):
        return SWAPPED
    if _near(got, (alpha, 1 / beta), 0.1):
        return A_RATE
    if got[0] == 0 or math.isclose(got[0], min(seconds)):
        return NO_FIT_OF_ALPHA
    if _near(got, _ends(sizes, seconds), _EXACT):
        return TWO_POINTS
    return ABSOLUTE_ERRORS if _near(got, _absolute_fit(sizes, seconds), 0.02) else ANOTHER_VALUE


def _noisy(
    generator: random.Random, sizes: Floats, exact: Floats, answer: tuple[float, float]
) -> list[float]:
    """Times that give the answer to a fit of relative errors, not of absolute ones, and not by two points."""
    while True:
        noisy = [seconds * generator.uniform(0.9, 1.1) for seconds in exact]
        wrong = (_absolute_fit(sizes, noisy), _ends(sizes, noisy))
        good = _near(alpha_beta.fit_alpha_beta(sizes, noisy), answer, 0.5 * _CLOSE)
        if good and not any(_near(fit[:1], answer[:1], 1.5 * _CLOSE) for fit in wrong):
            return noisy


def _near(got: Floats, want: Floats, tolerance: float) -> bool:
    return all(math.isclose(*pair, rel_tol=tolerance) for pair in zip(got, want, strict=True))


def _ends(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """The line through the first and the last point."""
    beta = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    return seconds[0] - beta * sizes[0], beta


def _absolute_fit(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Ordinary least squares, which the largest sizes decide alone."""
    beta, alpha = statistics.linear_regression(sizes, seconds)
    return alpha, beta


def _size(generator: random.Random) -> int:
    return generator.randrange(1, 1 << 30)


def _units(answer: float) -> list[Wrong]:
    """The right number in another unit."""
    factors = {"GB/s": 1e9, "GiB/s": 2**30, "MB/s": 1e6, "MiB/s": 2**20}
    return [Wrong(NOT_IN_BYTES_PER_SECOND, answer / factor, unit) for unit, factor in factors.items()]


def _number(
    name: str, arguments: tuple, answer: float, wrong: Sequence[Wrong], size: int, nothing: float = 0.0
) -> Trial:
    """A call that has to return this number; `nothing` is a difference that does not count."""

    def equal(value: float, other: float) -> bool:
        return math.isclose(value, other, rel_tol=_EXACT, abs_tol=nothing)

    def verify(outcomes: Sequence[Outcome | None]) -> Problem | None:
        got = outcomes[0].value
        if type(got) not in (int, float):
            return Problem(WRONG_TYPE, "a float", kind_of(got))
        if equal(got, answer):
            return None
        known = (each for each in wrong if equal(got, each.answer) and not equal(each.answer, answer))
        found = next(known, Wrong(ANOTHER_VALUE, got))
        unit = f" (in {found.unit}?)" if found.unit else ""
        return Problem(found.mistake, f"{answer:.6g}", f"{got:.6g}{unit}")

    return Trial(
        title=f"{name}({', '.join(_argument(argument) for argument in arguments)})",
        inputs=[arguments],
        driver=drivers.call,
        verify=verify,
        backends=("gloo",),
        size=size,
    )


def _argument(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else repr(value)
