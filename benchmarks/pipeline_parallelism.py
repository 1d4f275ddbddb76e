"""A step of training with the exercise's 1F1B, beside the same step with `torch.distributed.pipelining`.

Both take turns on the same ranks, each in a process group of its own, and both groups are as old as each
other: two worlds would differ by more than what is measured. Gradients and weights have to stay equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .model import Benchmark
from .training_steps import benchmark, definitions, in_turns, ratios

TOPIC = "07_pipeline_parallelism"
WORLD_SIZES = (2, 4)
FUNCTIONS = ("one_f_one_b_schedule", "run_pipeline")

Notebook = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Linear layers on each rank, samples of a microbatch, microbatches, and the steps of one measurement."""

    name: str
    layers: int
    width: int
    samples: int
    microbatches: int
    steps: int


SIZES = (
    Size("small", 2, 128, 16, 8, 30),
    Size("medium", 2, 1024, 32, 8, 6),  # the lecture's layers
    Size("many", 1, 512, 16, 32, 8),
)


def step_seconds(notebook: Notebook, size: Size) -> list[list[float]]:
    """Runs on each rank: seconds of each step with our pipeline and with torch's, in turns."""
    import torch
    import torch.distributed as dist

    groups = [dist.new_group(), dist.new_group()]
    stages = [_stage(size), _stage(size)]
    pipelines = [_ours(notebook, stages[0], size, groups[0]), _theirs(stages[1], size, groups[1])]
    seconds = in_turns([_step(*each) for each in zip(stages, pipelines, strict=True)], groups, size.steps)
    for own, theirs in zip(*[stage.parameters() for stage in stages], strict=True):
        torch.testing.assert_close(own, theirs)
    for group in groups:
        dist.destroy_process_group(group)
    return seconds


def _step(stage: Any, run_pipeline: Callable[[], None]) -> Callable[[], None]:
    """A whole step: the pipeline, with gradients cleared before it and used after it."""
    import torch

    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        run_pipeline()
        optimizer.step()

    return step


def _device() -> str:
    import torch.distributed as dist

    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def _stage(size: Size) -> Any:
    """This rank's layers, the same for both pipelines."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(dist.get_rank())
    layers = [torch.nn.Linear(size.width, size.width) for _ in range(size.layers)]
    return torch.nn.Sequential(*layers).to(_device())


def _batch(size: Size) -> list[Any]:
    """Inputs and targets of all microbatches, the same on every rank."""
    import torch

    torch.manual_seed(1)
    return [torch.randn(size.microbatches * size.samples, size.width).to(_device()) for _ in range(2)]


def _ours(notebook: Notebook, stage: Any, size: Size, group: Any) -> Callable[[], None]:
    import torch
    import torch.distributed as dist

    place, batch = (dist.get_rank(group), dist.get_world_size(group)), _batch(size)

    def step() -> None:
        schedule = notebook["one_f_one_b_schedule"](*place, size.microbatches)
        microbatches = list(zip(*[part.chunk(size.microbatches) for part in batch], strict=True))
        notebook["run_pipeline"](schedule, stage, microbatches, torch.nn.functional.mse_loss, group=group)

    return step


def _theirs(stage: Any, size: Size, group: Any) -> Callable[[], None]:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    wrapped = PipelineStage(stage, rank, world_size, torch.device(_device()), group=group)
    schedule = Schedule1F1B(wrapped, size.microbatches, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = _batch(size)
    arguments = (inputs,) if rank == 0 else ()
    options = {"target": targets, "losses": []} if rank == world_size - 1 else {}

    def step() -> None:
        schedule.step(*arguments, **options, return_outputs=False)

    return step


def solution() -> Notebook:
    """The parts of the exercise that are measured."""
    notebook = definitions(TOPIC)
    return {name: notebook[name] for name in FUNCTIONS}


def _benchmark(world_size: int, size: Size) -> Benchmark:
    return benchmark(
        __name__,
        f"one_f_one_b_{world_size}_{size.name}",
        f"a step of training with the exercise's 1F1B ({size.microbatches} microbatches of {size.samples}, "
        f"layers of width {size.width}, {size.layers} on each of {world_size} ranks), divided by its time "
        "with torch's `Schedule1F1B`",
        lambda: ratios(world_size, step_seconds, solution(), size),
    )


BENCHMARKS = tuple(_benchmark(world_size, size) for world_size in WORLD_SIZES for size in SIZES)
