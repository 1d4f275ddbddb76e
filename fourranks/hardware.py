"""What this machine is: how many processors and GPUs a world of ranks can share."""

from __future__ import annotations

import os


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_per_rank(world_size: int) -> int:
    """Threads for each rank's tensor operations, so that all ranks together fill the machine once."""
    return max(1, processors() // world_size)


def count_gpus() -> int:
    """GPUs that torch can use.

    Counting may start the CUDA driver, and a process that has done so cannot fork ranks any more: a
    short-lived child counts.
    """
    import torch

    if not torch.backends.cuda.is_built():
        return 0
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bytes([min(255, torch.cuda.device_count())]))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer[0] if answer else 0
