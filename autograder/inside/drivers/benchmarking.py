"""Uses what students write in exercise 03: formulas on numbers, and `benchmark` under a pretended clock.

The pretended clock makes a benchmark's answer exact: a call of `run` takes as long as its input says, on each
rank another time, and nothing else takes any. Only the student's code sees it; torch and the recorder do not.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from autograder.inside.drivers import Code, Group
from autograder.inside.drivers.simulated_cluster import SimulatedCluster
from autograder.inside.drivers.timers import timers_read
from autograder.inside.moments import mark
from autograder.inside.reports import Report
from fourranks.protocol import parcel

LAUNCH = 1e-5  # seconds that a call takes on the CPU when its work goes to a GPU
START = 1000.0  # the clock's reading in the beginning
_OURS = ("torch", "fourranks", "autograder")


Replacement = tuple[ModuleType, str, Callable[..., Any]]  # module, name in it, substitute


@dataclass(frozen=True)
class Pretended(Report):
    """The result of a benchmark under a pretended clock, and whether it made a tensor for the device."""

    value: object
    on_device: bool


@dataclass(frozen=True)
class Real(Report):
    """The result of a benchmark, and the seconds of each call by the driver's own clock."""

    value: object
    took: list[float]


def error(function: Code, *arguments: object) -> str:
    """Return the name of the exception that the function raises, or nothing."""
    try:
        function(*arguments)
    except Exception as raised:
        return type(raised).__name__
    return ""


def audit_log(audit: Code, log: list[dict[str, Any]], link: float) -> object:
    """Audit a log."""
    return audit(log, link)


@dataclass(frozen=True)
class Surveyed(Report):
    """The result for a simulated cluster, and the number of messages before it."""

    answer: object
    sent: int


def survey(measure_cluster: Code, alphas: list[list[float]], betas: list[list[float]], seed: int) -> Surveyed:
    """Let a simulated cluster be measured."""
    cluster = SimulatedCluster(alphas, betas, seed)

    def send(source: int, destination: int, num_bytes: int) -> float:  # not a method, which has the cluster
        return cluster.send(source, destination, num_bytes)

    answer = measure_cluster(send, len(alphas))
    return Surveyed(answer, cluster.sent)


def pretended(
    benchmark: Code, seconds: Sequence[float], warmup: int, iterations: int, device: str, group: Group = None
) -> Pretended:
    """Benchmark calls that take these seconds, one after another, on a CPU or a pretended GPU.

    Marked are each reading of the "clock", each begin ("run") and end ("ran") of a call, and each
    "synchronize".
    """
    clock = _Clock(seconds, on_gpu=device == "cuda")
    options = {"warmup": warmup, "iterations": iterations, "device": torch.device(device)}
    with _seen_by(benchmark, clock) as benchmark, _OnCpu() as redirected:
        value = benchmark(clock.run, **options, **({} if group is None else {"group": group}))
    return Pretended(value, redirected.count > 0)


def real(benchmark: Code, seconds: float, warmup: int, iterations: int) -> Real:
    """Benchmark calls that really take about these seconds."""
    on_gpu = dist.get_backend() == "nccl"
    marks: list[tuple[Any, Any]] = []

    def run() -> None:
        began = _mark(on_gpu)
        if on_gpu:
            torch.cuda._sleep(int(1.5e9 * seconds))  # cycles
        else:
            time.sleep(seconds)
        marks.append((began, _mark(on_gpu)))

    device = torch.device("cuda" if on_gpu else "cpu")
    value = benchmark(run, warmup=warmup, iterations=iterations, device=device)
    if on_gpu:
        torch.cuda.synchronize()
        return Real(value, [began.elapsed_time(ended) / 1000 for began, ended in marks])
    return Real(value, [ended - began for began, ended in marks])


def _mark(on_gpu: bool) -> Any:
    if not on_gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


# --- the pretended clock ------------------------------------------------------------------------------------


class _Clock:
    """One rank's time. Calls of `run` put it forward: at once, or on a GPU when somebody waits for them."""

    def __init__(self, seconds: Sequence[float], on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self._seconds = iter(seconds)
        self._now = self._idle_from = START  # of the CPU; when the GPU has done all that it was asked for

    def run(self) -> None:
        mark("run")
        took = next(self._seconds, 0.0)  # 0.0: called too often, which the check sees
        if self.on_gpu:
            self._idle_from = self.gpu_done + took
            self._now += LAUNCH
        else:
            self._now += took
        mark("ran")

    def read(self) -> float:
        mark("clock")
        return self._now

    def synchronize(self, *_: object, **__: object) -> None:
        mark("synchronize")
        self.wait_until(self._idle_from)

    def wait_until(self, moment: float) -> None:
        self._now = max(self._now, moment)

    @property
    def gpu_done(self) -> float:
        """When the GPU will have done all that it was asked for until now."""
        return max(self._now, self._idle_from)

    def event(self, *_: object, **__: object) -> _Event:
        return _Event(self)


class _Event:
    """Stands for a `torch.cuda.Event` of a pretended GPU."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._moment = START

    def record(self, *_: object) -> None:
        self._clock.read()  # for the list of events: it is a reading of the clock
        self._moment = self._clock.gpu_done

    def synchronize(self) -> None:
        self._clock.wait_until(self._moment)

    def elapsed_time(self, end: _Event) -> float:
        return 1000 * (end._moment - self._moment)


class _OnCpu(TorchFunctionMode):
    """Makes on the CPU what is meant for a GPU, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, function: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.device:  # naming a GPU needs none
            return function(*args, **kwargs)
        if function is torch.Tensor.cuda:
            self.count += 1
            return args[0]
        args = tuple(map(self._redirected, args))
        return function(*args, **{name: self._redirected(value) for name, value in kwargs.items()})

    def _redirected(self, value: object) -> object:
        is_gpu = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        self.count += is_gpu
        return torch.device("cpu") if is_gpu else value


@contextlib.contextmanager
def _seen_by(benchmark: Code, clock: _Clock) -> Iterator[Code]:
    """Put pretended functions in the place of real ones, in their modules and wherever the student has them.

    Yields:
        The student's code, unpickled while the modules have the pretended functions.
    """
    pickled = parcel.dumps(benchmark)
    replacements = [*_clocks(clock), *(_gpu(clock) if clock.on_gpu else _no_gpu())]
    originals = [(module, name, getattr(module, name)) for module, name, _ in replacements]
    stand_ins = {original: each for (*_, original), (*_, each) in zip(originals, replacements, strict=True)}
    try:
        for module, name, stand_in in replacements:
            setattr(module, name, stand_in)
        with timers_read(stand_ins):
            yield pickle.loads(pickled)
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def _clocks(clock: _Clock) -> Iterator[Replacement]:
    for name in ("perf_counter", "monotonic", "time"):
        yield time, name, _for_students(clock.read, getattr(time, name))
        in_ns = getattr(time, f"{name}_ns")
        yield time, f"{name}_ns", _for_students(lambda: round(1e9 * clock.read()), in_ns)
    yield timeit, "default_timer", _for_students(clock.read, timeit.default_timer)


def _gpu(clock: _Clock) -> Iterator[Replacement]:
    stream = SimpleNamespace(synchronize=clock.synchronize)
    stand_ins: dict[str, Callable[..., Any]] = {
        "synchronize": clock.synchronize,
        "Event": clock.event,
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "current_stream": lambda *_: stream,
    }
    for name, stand_in in stand_ins.items():
        yield torch.cuda, name, _for_students(stand_in, getattr(torch.cuda, name))
    yield torch.accelerator, "synchronize", _for_students(clock.synchronize, torch.accelerator.synchronize)


def _no_gpu() -> Iterator[Replacement]:
    """Replace what a GPU offers as on a laptop, wherever the check runs."""

    def synchronize(*_: object, **__: object) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    stand_ins: dict[str, Callable[..., Any]] = {"synchronize": synchronize, "is_available": lambda: False}
    for name, stand_in in stand_ins.items():
        yield torch.cuda, name, _for_students(stand_in, getattr(torch.cuda, name))


def _for_students(pretended: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that pretends to a student's code only."""

    def chosen(*arguments: object, **keywords: object) -> object:
        caller = real if _is_library(sys._getframe(1)) else pretended
        return caller(*arguments, **keywords)

    return chosen


def _is_library(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _OURS or package in sys.stdlib_module_names - {"timeit"}
