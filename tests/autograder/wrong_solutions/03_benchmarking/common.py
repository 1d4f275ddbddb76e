# Helpers of the wrong solutions: all of them are right.
import math  # noqa: F401
import statistics
import time

import torch
import torch.distributed as dist


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(run, device, group=None):
    """This rank's seconds of one call, begun together."""
    synchronize(device)
    dist.barrier(group)
    start = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - start


def warm(run, warmup):
    for _ in range(warmup):
        run()


def slowest(seconds, device, group=None, op=dist.ReduceOp.MAX):
    """For each iteration the seconds of the slowest rank."""
    combined = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(combined, op, group=group)
    return combined.tolist()


def times(run, warmup, iterations, device, group=None):
    """The slowest rank's seconds of each iteration: all that is right but for the last step."""
    warm(run, warmup)
    return slowest([timed(run, device, group) for _ in range(iterations)], device, group)


def middle(seconds):
    return statistics.median(seconds)


SHARED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "scatter": 1, "gather": 1}
WHOLE = ("broadcast", "reduce", "sendrecv", "hypercube")


def factor(collective, n):
    if collective in WHOLE:
        return 1
    if collective not in SHARED:
        raise ValueError(collective)
    return SHARED[collective] * (n - 1) / n
