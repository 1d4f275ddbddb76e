"""One check of exercise 02, on its reference solution: the course's own, and as a test with mp.spawn.

The test draws the same cases and compares the same values. It knows nothing of traffic; the check does.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import peers
from .model import OURS, Benchmark, Contender

EXERCISE = Path(__file__).parent.parent / "source" / "02_collectives" / "exercise.py"


def reference_solution() -> str:
    """The functions of the solved exercise, with the imports that they need."""
    kept = (ast.Import, ast.FunctionDef)
    nodes = [node for node in ast.parse(EXERCISE.read_text(encoding="utf-8")).body if isinstance(node, kept)]
    return "\n\n".join(map(ast.unparse, nodes))


def four_ranks() -> Iterator[float]:
    from autograder import check
    from fourranks import zygote

    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec(reference_solution(), notebook)
    zygote.shared().ready()
    while True:
        began = time.monotonic()
        check.ring_all_reduce(notebook["ring_all_reduce"])
        yield time.monotonic() - began


def spawn() -> Iterator[float]:
    from torch import multiprocessing

    from autograder.checks.collectives import WORLD_SIZES

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "reference_solution.py").write_text(reference_solution(), encoding="utf-8")
        while True:
            began = time.monotonic()
            for world_size in WORLD_SIZES:
                multiprocessing.spawn(
                    _compare_on_rank, args=(world_size, peers.free_port(), folder), nprocs=world_size
                )
            yield time.monotonic() - began


def _compare_on_rank(rank: int, world_size: int, port: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    from autograder.checks.collectives import DTYPES, NUMELS, WORLD_SIZES

    sys.path.append(folder)
    from reference_solution import ring_all_reduce

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    generator = torch.Generator().manual_seed(0)
    everybody = list(range(world_size))
    cases = [(numel, DTYPES[turn % len(DTYPES)], everybody) for turn, numel in enumerate(NUMELS)]
    if world_size == max(WORLD_SIZES):
        cases.append((NUMELS[-1], DTYPES[0], everybody[1:]))
    for numel, dtype, members in cases:
        inputs = torch.randint(-16, 17, (world_size, numel), generator=generator).to(dtype)
        group = dist.new_group(members)
        if rank in members:
            tensor = inputs[rank].clone()
            ring_all_reduce(tensor, group=group)
            assert torch.equal(tensor, inputs[members].sum(0).to(dtype))
    with contextlib.suppress(ValueError):
        dist.destroy_process_group()


BENCHMARKS = (
    Benchmark(
        "one check of the exercise, `check.ring_all_reduce`, on the reference solution",
        (
            Contender(f"{OURS}: values and traffic", four_ranks),
            Contender("torch.multiprocessing.spawn: values", spawn),
        ),
        repeats=3,
    ),
)
