"""A step of training with the exercise's prefetching wrapper, beside the same with torch's `fully_shard`.

Both take turns on the same ranks, each in a process group of its own, as in `data_parallelism`. Every layer
is a unit of its own for torch, as it is for ours; biases, which are small, stay whole with ours.
"""

from __future__ import annotations

import functools
from typing import Any

from .model import Benchmark
from .training_steps import Size, benchmark, definitions, in_turns, module_of, ratios, step_of

TOPIC = "05_sharded_data_parallelism"
WRAPPER = "PrefetchingFullyShardedDataParallel"
WORLD_SIZES = (2, 4)
SIZES = (
    Size("small", 8, 128, 32, 40),
    Size("medium", 4, 1024, 128, 8),
    Size("large", 4, 2048, 32, 6),
)


def step_seconds(ours: type, size: Size) -> list[list[float]]:
    """Runs on each rank: seconds of each step with our wrapper and with torch's, in turns."""
    import torch

    groups = _groups()
    models = [
        ours(module_of(size), min_shard_numel=size.width + 1, group=groups[0]),
        _fully_sharded(module_of(size), groups[1]),
    ]
    seconds = in_turns([step_of(model, size) for model in models], groups, size.steps)
    theirs = models[1].state_dict()
    for name, own in models[0].full_state_dict().items():
        torch.testing.assert_close(own, theirs[name].full_tensor())
    return seconds


@functools.cache
def _groups() -> list[Any]:
    """One for each wrapper, made once on a rank: DTensor remembers a mesh, and so its group, for good."""
    import torch.distributed as dist

    return [dist.new_group(), dist.new_group()]


def _fully_sharded(module: Any, group: Any) -> Any:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, next(module.parameters()).device.type)
    for layer in module:
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def _benchmark(world_size: int, size: Size) -> Benchmark:
    return benchmark(
        __name__,
        f"fully_sharded_{world_size}_{size.name}",
        f"a step of training with the exercise's `{WRAPPER}` ({size.layers} layers of width {size.width}, "
        f"{world_size} ranks), divided by its time with torch's `fully_shard`",
        lambda: ratios(world_size, step_seconds, definitions(TOPIC)[WRAPPER], size),
    )


BENCHMARKS = tuple(_benchmark(world_size, size) for world_size in WORLD_SIZES for size in SIZES)
