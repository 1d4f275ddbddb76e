"""A step of training with the exercise's two wrappers, beside the same step with torch's own.

The wrappers take turns on the same ranks, each in a process group of its own, and both groups are as old as
each other: two worlds would differ by more than what is measured. Like is compared with like: the wrapper
that sends each gradient by itself with torch's when that gives each gradient a bucket of its own.
"""

from __future__ import annotations

from typing import Any

from .model import Benchmark
from .training_steps import Size, benchmark, definitions, in_turns, module_of, ratios, step_of

TOPIC = "04_data_parallelism"
ONE_BYTE = 2**-20  # a bucket is closed once it has so many MiB: each gradient has one to itself
WRAPPERS = {  # of the exercise, and torch's options that make it do the same
    "DistributedDataParallel": {"bucket_cap_mb": ONE_BYTE},
    "BucketedDistributedDataParallel": {},
}
WORLD_SIZES = (2, 4)
SIZES = (
    Size("small", 8, 128, 32, 40),
    Size("medium", 4, 1024, 128, 8),  # the lecture's
    Size("large", 4, 2048, 32, 6),
)


def step_seconds(ours: type, options: dict[str, Any], size: Size) -> list[list[float]]:
    """Runs on each rank: seconds of each step with our wrapper and with torch's, in turns."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    groups = [dist.new_group(), dist.new_group()]
    models = [
        ours(module_of(size), group=groups[0]),
        DistributedDataParallel(module_of(size), process_group=groups[1], **options),
    ]
    seconds = in_turns([step_of(model, size) for model in models], groups, size.steps)
    for own, theirs in zip(*[model.parameters() for model in models], strict=True):
        torch.testing.assert_close(own, theirs)
    for group in groups:
        dist.destroy_process_group(group)
    return seconds


def _benchmark(wrapper: str, world_size: int, size: Size) -> Benchmark:
    options = WRAPPERS[wrapper]
    buckets = " with a bucket for each gradient" if options else ""
    return benchmark(
        __name__,
        f"{wrapper}_{world_size}_{size.name}",
        f"a step of training with the exercise's `{wrapper}` ({size.layers} layers of width {size.width}, "
        f"{world_size} ranks), divided by its time with torch's{buckets}",
        lambda: ratios(world_size, step_seconds, definitions(TOPIC)[wrapper], options, size),
    )


BENCHMARKS = tuple(
    _benchmark(wrapper, world_size, size)
    for wrapper in WRAPPERS
    for world_size in WORLD_SIZES
    for size in SIZES
)
