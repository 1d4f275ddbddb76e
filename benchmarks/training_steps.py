"""Times a step of training in the exercise's way and in torch's, which take turns on the same ranks.

Used by the benchmarks of exercises 04 to 07. `module_of`, `step_of` and `in_turns` run on the ranks.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .model import OURS, Benchmark, Contender, at_most
from .mutation import exercise

WARM_UP = 3  # steps; torch learns from the first ones in which order wrappers are used, and messages' shapes


@dataclass(frozen=True)
class Size:
    """A stack of linear layers, the samples of a batch on each rank, and the steps of one measurement."""

    name: str
    layers: int
    width: int
    batch: int
    steps: int


def module_of(size: Size) -> Any:
    """The same on every rank and for both wrappers."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    layers = [torch.nn.Linear(size.width, size.width) for _ in range(size.layers)]
    return torch.nn.Sequential(*layers).to("cuda" if dist.get_backend() == "nccl" else "cpu")


def in_turns(steps: Sequence[Callable[[], None]], groups: Sequence[Any], count: int) -> list[list[float]]:
    """Seconds of so many runs of each of two steps, which take turns in who begins."""
    import torch
    import torch.distributed as dist

    seconds: list[list[float]] = [[], []]
    for turn in range(WARM_UP + count):
        for index in (0, 1) if turn % 2 else (1, 0):
            dist.barrier(groups[index])
            began = time.perf_counter()
            steps[index]()
            if dist.get_backend() == "nccl":
                torch.cuda.synchronize()
            seconds[index].append(time.perf_counter() - began)
    return [own[WARM_UP:] for own in seconds]


def step_of(model: Any, size: Size) -> Callable[[], None]:
    """A whole step: forward, backward, all gradients averaged, the optimizer's step."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(1 + dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(size.batch, size.width).to(next(model.parameters()).device)
    finish = getattr(model, "finish_gradient_synchronization", lambda: None)  # torch's has done it by then

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        finish()
        optimizer.step()

    return step


def definitions(topic: str) -> dict[str, Any]:
    """The definitions of the solved cells of a topic's exercise, as a notebook's."""
    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec(exercise.read(topic).definitions(), notebook)
    return notebook


def ratios(world_size: int, step_seconds: Callable, *arguments: object) -> Iterator[float]:
    """Median time of a step in our way, divided by that in torch's.

    Args:
        step_seconds: runs on each rank with these arguments; gives the seconds of each step in both ways.
    """
    import fourranks

    with fourranks.start(world_size) as group:
        while True:
            seconds = group.run(step_seconds, *arguments)
            ours, theirs = zip(*seconds, strict=True)
            yield _median_step(ours) / _median_step(theirs)


def _median_step(seconds: Sequence[Sequence[float]]) -> float:
    """The median over steps of what each took on its slowest rank."""
    return statistics.median(map(max, zip(*seconds, strict=True)))


def benchmark(module: str, name: str, measured: str, begin: Callable[[], Iterator[float]]) -> Benchmark:
    """A benchmark of such ratios, in turns on the same ranks.

    Args:
        module: in which a contender's own process finds the samples, under this name.
    """

    def samples() -> Iterator[float]:
        return begin()

    samples.__name__, samples.__module__ = name, module
    setattr(sys.modules[module], name, samples)
    contender = Contender(OURS, samples, at_most(1.0, ""))
    return Benchmark(f"{measured} (the same ranks, in turns)", (contender,), repeats=7, unit="")
