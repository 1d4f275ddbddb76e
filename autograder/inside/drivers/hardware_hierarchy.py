"""Drivers of exercise 01: a parser's answer as plain data, and a machine whose time is made of copies."""

from __future__ import annotations

import pickle
import statistics
import threading
import time
import timeit
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autograder.inside.drivers import Code
from autograder.inside.drivers.timers import timers_read
from autograder.inside.reports import Report
from fourranks.protocol import parcel

TURNS = 6  # measurements of the real machine
CACHED = 0.7  # times as long as usual: a copy on the simulated machine whose bytes are in a cache


@dataclass(frozen=True)
class Listing(Report):
    """A parser's result for a listing: the name of its type, "dict" for any, and each key with its value."""

    type: str
    entries: list[tuple[object, object]]


@dataclass(frozen=True)
class Refusal(Report):
    """A parser's exception: the names of the exception's classes, if there is one, and its message."""

    classes: list[str]
    message: str


@dataclass(frozen=True)
class FakeMeasurement(Report):
    """A measurement by a fake clock: the bytes of each copy that was seen, and how often a clock was read."""

    answer: object
    copies: list[int]
    readings: int


@dataclass(frozen=True)
class RealMeasurements(Report):
    """A student's answers, and medians of our own before the first, between them and after the last.

    All are in bytes/s.
    """

    answers: list[object]
    reference: list[float]


def read_listing(parse_topology: Code, text: str) -> Listing:
    """Parse a listing."""
    table = parse_topology(text)
    if isinstance(table, dict):
        return Listing("dict", list(table.items()))
    return Listing(type(table).__name__, [])


def refuse_listing(parse_topology: Code, text: str) -> Refusal:
    """Parse a text that is no listing."""
    try:
        parse_topology(text)
    except NotImplementedError:
        raise
    except Exception as error:
        return Refusal([kind.__name__ for kind in type(error).__mro__], str(error))
    return Refusal([], "")


def measure_with_fake_clock(
    measure: Code, num_bytes: int, copy_seconds: float, turn: int = 0
) -> FakeMeasurement:
    """Measure a machine on which a copy of `num_bytes` takes `copy_seconds`, on every clock.

    Args:
        turn: decides which of its copies are disturbed: of three turns in a row each disturbs others.
    """
    machine = _Machine(num_bytes, copy_seconds, turn)
    with _clocks_show(machine, measure) as measure, machine:
        answer = measure(num_bytes)
    return FakeMeasurement(answer, machine.copies, machine.readings)


def measure_for_real(measure: Code, num_bytes: int) -> RealMeasurements:
    """Measure this machine as it is, by one thread: the student and we take turns.

    Several, as other programs slow down now one, now the other. Medians, as another program may come into the
    middle of a copy. One thread, as with more of them, on many cores, it depends on how the code uses them.
    """
    before = torch.get_num_threads()
    try:
        answers, reference = [], [statistics.median(_measure(num_bytes))]
        for _ in range(TURNS):
            answers.append(measure(num_bytes))
            reference.append(statistics.median(_measure(num_bytes)))
    finally:
        torch.set_num_threads(before)
    return RealMeasurements(answers, reference)


def _measure(num_bytes: int) -> list[float]:
    """Return the bandwidth of each of some copies by one thread, read plus written."""
    torch.set_num_threads(1)
    source = torch.ones(num_bytes, dtype=torch.uint8)
    destination = torch.zeros_like(source)
    bandwidths = []
    for _ in range(8):
        start = time.perf_counter()
        destination.copy_(source)
        bandwidths.append(2 * num_bytes / (time.perf_counter() - start))
    return bandwidths[1:]  # the first copy meets the memory for the first time


class _Machine(TorchFunctionMode):
    """A machine on which time passes when one tensor is copied into another, and at no other time.

    As on a real one, the first copy into new memory is slow, now and then something else gets in between, and
    now and then a copy finds its bytes in a cache.
    """

    PERIOD = 6  # copies, of which two are disturbed: in three turns each has been once
    COLD, INTERRUPTED = 20, 15  # times as long
    TICK = 40e-9  # seconds that a look at the clock takes

    def __init__(self, num_bytes: int, copy_seconds: float, turn: int) -> None:
        super().__init__()
        self._disturbed = {
            (3 + 2 * turn) % self.PERIOD: self.INTERRUPTED,
            (4 + 2 * turn) % self.PERIOD: CACHED,
        }
        self.copies: list[int] = []
        self.readings = 0
        self._seconds_per_byte = copy_seconds / num_bytes
        self._now = 1000.0
        self._touched: dict[int, torch.UntypedStorage] = {}  # kept, so that no other takes an address

    def now(self) -> float:
        self.readings += 1
        self._now += self.TICK
        return self._now

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Any:
        result = function(*arguments, **(keywords or {}))
        name = getattr(function, "__name__", "")
        if name == "copy_":
            self._copy(arguments[0], arguments[1] if len(arguments) > 1 else (keywords or {})["other"])
        elif name == "__setitem__" and isinstance(arguments[2], torch.Tensor):
            self._copy(arguments[0][arguments[1]], arguments[2])
        return result

    def _copy(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        address = destination.data_ptr()
        if address == source.data_ptr():
            return  # onto itself: torch moves nothing, and refuses what overlaps in part
        self.copies.append(destination.nbytes)
        times_as_long = self._disturbed.get(len(self.copies) % self.PERIOD, 1)
        if address not in self._touched:
            self._touched[address] = destination.untyped_storage()
            times_as_long = self.COLD
        self._now += times_as_long * self._seconds_per_byte * destination.nbytes


_NAMES = ("perf_counter", "monotonic", "time", "process_time", "thread_time", "clock_gettime")
_CLOCKS = [f"{name}{unit}" for name in _NAMES for unit in ("", "_ns")]


@contextmanager
def _clocks_show(machine: _Machine, function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Put the machine's time in the place of every clock that the function can get at.

    These are the clocks of `time` and the defaults of timeit. The function is pickled before they are
    replaced and unpickled afterwards, so that it also finds the machine's time wherever it keeps a clock.
    Other threads of the rank see the real time.

    Yields:
        The function, unpickled.
    """
    pickled = parcel.dumps(function)
    reals = {getattr(time, name): name.endswith("_ns") for name in _CLOCKS}
    stand_ins = {real: _fake(real, machine, 10**9 if in_ns else 1) for real, in_ns in reals.items()}
    undo = []
    for names in (vars(time), vars(timeit)):
        for name, value in list(names.items()):
            if isinstance(value, types.BuiltinFunctionType) and value in stand_ins:
                names[name] = stand_ins[value]
                undo.append((names, name, value))
    try:
        with timers_read(stand_ins):
            yield pickle.loads(pickled)
    finally:
        for names, name, value in undo:
            names[name] = value


def _fake(real: Callable[..., float], machine: _Machine, per_second: int) -> Callable[..., float]:
    thread = threading.get_ident()

    def clock(*of: int) -> float:
        if threading.get_ident() != thread:
            return real(*of)
        return machine.now() if per_second == 1 else round(machine.now() * per_second)

    return clock
