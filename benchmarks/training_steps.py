"""Times the same step of training with two wrappers of one model that take turns on the same ranks.

Used by the benchmarks of the exercises' wrappers; all but `median_step` runs on the ranks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

WARM_UP = 3  # steps; torch's wrappers learn from the first ones in which order they are used


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


def in_turns(models: Sequence[Any], groups: Sequence[Any], size: Size) -> list[list[float]]:
    """Seconds of each step with each of two models, which take turns in who begins."""
    import torch.distributed as dist

    steps = [_step(model, size) for model in models]
    seconds: list[list[float]] = [[], []]
    for turn in range(WARM_UP + size.steps):
        for index in (0, 1) if turn % 2 else (1, 0):
            dist.barrier(groups[index])
            began = time.perf_counter()
            steps[index]()
            seconds[index].append(time.perf_counter() - began)
    return [own[WARM_UP:] for own in seconds]


def _step(model: Any, size: Size) -> Callable[[], None]:
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
        if inputs.is_cuda:
            torch.cuda.synchronize()

    return step


def median_step(seconds: Sequence[Sequence[float]]) -> float:
    """The median over steps of what each took on its slowest rank."""
    return statistics.median(map(max, zip(*seconds, strict=True)))
