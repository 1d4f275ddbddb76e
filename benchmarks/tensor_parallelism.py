"""A step of training with the exercise's tensor-parallel MLP, beside the same step with torch's DTensor.

Both take turns on the same ranks, each in a process group of its own, and both groups are as old as each
other. The MLP is a transformer's: columns, GELU, rows, with one all-reduce forward and one backward.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .model import Benchmark
from .training_steps import benchmark, definitions, in_turns, ratios

TOPIC = "06_tensor_parallelism"
WORLD_SIZES = (2, 4)


@dataclass(frozen=True)
class Size:
    """An MLP whose hidden width is four times its width, its tokens, and the steps of one measurement."""

    name: str
    width: int
    tokens: int
    steps: int


SIZES = (
    Size("small", 128, 64, 40),
    Size("medium", 512, 256, 16),
    Size("large", 1024, 512, 6),
)


def step_seconds(ours: type, size: Size) -> list[list[float]]:
    """Runs on each rank: seconds of each step with our MLP and with DTensor's, in turns."""
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    groups = _groups()
    whole = _whole(size)
    models = [ours(size.width, 4 * size.width, group=groups[0]), _with_dtensor(whole, groups[1], device)]
    models[0].load_full(_whole(size).state_dict())
    models[0].to(device)
    seconds = in_turns([_step(model, size, device) for model in models], groups, size.steps)
    for own, theirs in zip(*[model.parameters() for model in models], strict=True):
        torch.testing.assert_close(own, getattr(theirs, "to_local", lambda t=theirs: t)())
    return seconds


@functools.cache
def _groups() -> tuple[Any, Any]:
    """Made once in each world: DTensor remembers the group of its first mesh and goes on using it."""
    import torch.distributed as dist

    return dist.new_group(), dist.new_group()


def _whole(size: Size) -> Any:
    """The same on every rank and for both."""
    import torch

    from autograder.unsharded import MLP

    torch.manual_seed(0)
    return MLP(size.width, 4 * size.width)


def _with_dtensor(module: Any, group: Any, device: str) -> Any:
    """The module, cut by torch over the ranks of a group."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = DeviceMesh.from_group(group, device)
    return parallelize_module(module.to(device), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def _step(model: Any, size: Size, device: str) -> Callable[[], None]:
    """A whole step: forward, backward to the weights and to the input, the optimizer's step."""
    import torch

    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(size.tokens, size.width).to(device).requires_grad_()

    def step() -> None:
        optimizer.zero_grad()
        x.grad = None
        model(x).square().mean().backward()
        optimizer.step()

    return step


def _benchmark(world_size: int, size: Size) -> Benchmark:
    return benchmark(
        __name__,
        f"ParallelMLP_{world_size}_{size.name}",
        f"a step of training with the exercise's `ParallelMLP` (width {size.width}, {size.tokens} tokens, "
        f"{world_size} ranks), divided by its time with DTensor's `parallelize_module`",
        lambda: ratios(world_size, step_seconds, definitions(TOPIC)["ParallelMLP"], size),
    )


BENCHMARKS = tuple(_benchmark(world_size, size) for world_size in WORLD_SIZES for size in SIZES)
