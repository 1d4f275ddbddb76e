"""Tests of exercise 02 as one writes them for nbgrader alone: values on every rank, by torch.multiprocessing.

They draw the same cases as the course's own checks and compare the same values. They know nothing of traffic,
and trust what they test. A notebook finds this file beside it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

WORLD_SIZES = (1, 2, 3, 4, 5)
NUMELS = (0, 1, 7, 1000)


def compare(
    source: str, operation: str, world_sizes: Sequence[int] = WORLD_SIZES, numels: Sequence[int] = NUMELS
) -> None:
    """Call an operation in worlds of these sizes; the first rank with another result raises an exception.

    Args:
        source: defines the operation, with all that it needs: spawned ranks know nothing of a notebook.
    """
    from torch import multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "submitted_functions.py").write_text(source, encoding="utf-8")
        for world_size in world_sizes:
            arguments = (world_size, _free_port(), folder, operation, numels)
            multiprocessing.spawn(_compare_on_rank, args=arguments, nprocs=world_size)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _compare_on_rank(
    rank: int, world_size: int, port: int, folder: str, operation: str, numels: Sequence[int]
) -> None:
    import torch
    import torch.distributed as dist

    sys.path.append(folder)
    import submitted_functions

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    generator = torch.Generator().manual_seed(0)
    dtypes = (torch.float32, torch.int64, torch.bfloat16, torch.float64)
    everybody = list(range(world_size))
    cases = [(numel, dtypes[turn % len(dtypes)], everybody) for turn, numel in enumerate(numels)]
    if world_size > 2:
        cases.append((numels[-1], dtypes[0], everybody[1:]))
    for numel, dtype, members in cases:
        inputs = torch.randint(-16, 17, (world_size, numel), generator=generator).to(dtype)
        group = dist.new_group(members)
        if rank in members:
            test = globals()[f"_{operation}"]
            test(
                getattr(submitted_functions, operation), inputs[members], members.index(rank), members, group
            )
    with contextlib.suppress(ValueError):
        dist.destroy_process_group()


def _broadcast(broadcast, inputs, position, members, group):
    import torch

    for root, src in enumerate(members):
        tensor = inputs[position].clone()
        broadcast(tensor, src, group=group)
        assert torch.equal(tensor, inputs[root])


def _ring_all_reduce(ring_all_reduce, inputs, position, members, group):
    import torch

    tensor = inputs[position].clone()
    ring_all_reduce(tensor, group=group)
    assert torch.equal(tensor, inputs.sum(0).to(inputs.dtype))


def _all_to_all(all_to_all, inputs, position, members, group):
    import torch

    parts = len(members)
    whole = torch.stack([own.repeat(parts) for own in inputs])  # of each rank a chunk for every other one
    output = torch.zeros_like(whole[position])
    all_to_all(output, whole[position].clone(), group=group)
    expected = [own.tensor_split(parts)[position] for own in whole]
    assert torch.equal(output, torch.cat(expected))
