"""The cost of the recording process group, which every call of a rank passes through, and of a trace.

The same loop on ranks of Four Ranks, on such ranks with torch's own process group put back, and on as many
processes of `torch.multiprocessing.spawn`.
"""

from __future__ import annotations

import operator
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from . import peers
from .model import OURS, Benchmark, Contender, at_most

LARGE = (4, 1 << 20, 20)  # world size, float32 elements, calls in one measurement
SMALL = (4, 1, 200)
LOOP, LOOPS = 10, 16  # calls of the large one in a loop, and loops with a trace and without
ALONE = (1, 1, 2000)  # nobody to wait for: only the call itself is left


def fastest_call(numel: int, calls: int) -> float:
    """Runs on each rank: seconds of the fastest of some all-reduces, the one that nothing else disturbed."""
    import torch
    import torch.distributed as dist

    def seconds() -> float:
        began = time.perf_counter()
        dist.all_reduce(x)
        return time.perf_counter() - began

    x = torch.zeros(numel)
    dist.barrier()
    return min(seconds() for _ in range(calls))


def traced_and_plain(numel: int, calls: int, loops: int) -> list[list[float]]:
    """Runs on each rank: seconds of loops on the recorded group and on one of torch's own, in turns."""
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    recording, distributed_c10d.ProcessGroup = distributed_c10d.ProcessGroup, dist.ProcessGroup
    plain = dist.new_group()
    distributed_c10d.ProcessGroup = recording
    groups, seconds, x = [dist.new_group(), plain], [[], []], torch.zeros(numel)
    for loop in range(loops):
        for index in (0, 1) if loop % 2 else (1, 0):
            dist.barrier(groups[index])
            began = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(x, group=groups[index])
            seconds[index].append(time.perf_counter() - began)
    for group in groups:
        dist.destroy_process_group(group)
    return seconds


def traced_by_plain() -> Iterator[float]:
    import fourranks

    world_size, numel, _ = LARGE
    with fourranks.start(world_size) as group:
        while True:
            with group.trace() as trace:
                traced, plain = zip(*group.run(traced_and_plain, numel, LOOP, LOOPS), strict=True)
            assert [len(own) for own in trace.calls] == [LOOPS * (LOOP + 1)] * world_size  # with barriers
            yield statistics.median(map(operator.truediv, _loops(traced), _loops(plain)))


def _loops(seconds: Sequence[Sequence[float]]) -> Iterator[float]:
    """The time of each loop on its slowest rank."""
    return map(max, zip(*seconds, strict=True))


def _four_ranks(world_size: int, numel: int, calls: int) -> Iterator[float]:
    import fourranks

    with fourranks.start(world_size) as group:
        while True:
            yield max(group.run(fastest_call, numel, calls))


def _use_torchs_own_group() -> None:
    """Runs on each rank: undoes the recording."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    dist.destroy_process_group()
    distributed_c10d.ProcessGroup = dist.ProcessGroup
    dist.init_process_group("gloo")


def _unrecorded(world_size: int, numel: int, calls: int) -> Iterator[float]:
    import fourranks

    with fourranks.start(world_size) as group:
        group.run(_use_torchs_own_group)
        while True:
            yield max(group.run(fastest_call, numel, calls))


def _spawned(world_size: int, numel: int, calls: int) -> Iterator[float]:
    from torch import multiprocessing

    pipes = [multiprocessing.get_context("spawn").Pipe() for _ in range(world_size)]
    ranks = multiprocessing.spawn(
        _spawned_rank,
        args=(world_size, peers.free_port(), [theirs for _, theirs in pipes]),
        nprocs=world_size,
        join=False,
    )
    try:
        while True:
            for ours, _ in pipes:
                ours.send((numel, calls))
            yield max(ours.recv() for ours, _ in pipes)
    finally:
        for ours, _ in pipes:
            ours.send(None)
        while not ranks.join():
            pass


def _spawned_rank(rank: int, world_size: int, port: int, pipes: list[Any]) -> None:
    import torch
    import torch.distributed as dist

    from fourranks.hardware import threads_per_rank

    torch.set_num_threads(threads_per_rank(world_size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    while (request := pipes[rank].recv()) is not None:
        pipes[rank].send(fastest_call(*request))
    dist.destroy_process_group()


def four_ranks_large() -> Iterator[float]:
    return _four_ranks(*LARGE)


def unrecorded_large() -> Iterator[float]:
    return _unrecorded(*LARGE)


def spawned_large() -> Iterator[float]:
    return _spawned(*LARGE)


def four_ranks_small() -> Iterator[float]:
    return _four_ranks(*SMALL)


def unrecorded_small() -> Iterator[float]:
    return _unrecorded(*SMALL)


def spawned_small() -> Iterator[float]:
    return _spawned(*SMALL)


def four_ranks_alone() -> Iterator[float]:
    return _four_ranks(*ALONE)


def unrecorded_alone() -> Iterator[float]:
    return _unrecorded(*ALONE)


UNRECORDED = "the same ranks with torch's own process group"
SPAWNED = "torch.multiprocessing.spawn"
BENCHMARKS = (
    Benchmark(
        f"a loop of {LOOP} all-reduces of 4 MiB on 4 ranks with a trace on, divided by its time on "
        "torch's own process group (the same ranks, in turns)",
        (Contender(OURS, traced_by_plain, at_most(1.03, "")),),
        repeats=15,
        unit="",
    ),
    Benchmark(
        f"all-reduce of 4 MiB on 4 ranks, recorded; fastest of {LARGE[-1]}",
        (
            Contender(OURS, four_ranks_large),
            Contender(UNRECORDED, unrecorded_large),
            Contender(SPAWNED, spawned_large),
        ),
        repeats=30,
    ),
    Benchmark(
        f"all-reduce of 4 bytes on 4 ranks, recorded; fastest of {SMALL[-1]}",
        (
            Contender(OURS, four_ranks_small),
            Contender(UNRECORDED, unrecorded_small),
            Contender(SPAWNED, spawned_small),
        ),
        repeats=30,
    ),
    Benchmark(
        f"all-reduce of 4 bytes on 1 rank, recorded; fastest of {ALONE[-1]}",
        (Contender(OURS, four_ranks_alone), Contender(UNRECORDED, unrecorded_alone)),
        repeats=15,
    ),
)
