"""Measures the bandwidth of all-reduce over a range of sizes, in the units of nccl-tests."""

import time

import torch
import torch.distributed as dist

WARM_UPS, ITERATIONS = 3, 8
SIZES = [1 << power for power in (16, 18, 20, 22)]  # bytes

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


def repeat(buffer: torch.Tensor, count: int) -> list[dist.Work]:
    """Issue `count` all-reduces of a buffer, one after another."""
    return [dist.all_reduce(buffer, async_op=True) for _ in range(count)]


def finish(works: list[dist.Work]) -> None:
    """Wait until the last of them is over."""
    for work in works:
        work.wait()


def seconds_of(num_bytes: int) -> float:
    """Return the time of one all-reduce, on the slowest rank."""
    buffer = torch.ones(num_bytes // 4)
    finish(repeat(buffer, WARM_UPS))
    dist.barrier()
    began = time.perf_counter()
    works = repeat(buffer, ITERATIONS)
    elapsed = torch.tensor(time.perf_counter() - began)
    finish(works)
    dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
    return elapsed.item() / ITERATIONS


if rank == 0:
    print(f"{'bytes':>10} {'time (us)':>10} {'algbw':>8} {'busbw':>8}   (GB/s)")
for size in SIZES:
    seconds = seconds_of(size)
    algbw = size / seconds / 1e9
    busbw = algbw * 2 * (world_size - 1) / world_size
    if rank == 0:
        print(f"{size:>10} {1e6 * seconds:>10.1f} {algbw:>8.2f} {busbw:>8.2f}")
