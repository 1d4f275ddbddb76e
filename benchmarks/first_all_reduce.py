"""The program of a rank of `torchrun`, or of `torch.multiprocessing.spawn`, in the benchmark `start`."""

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist


def first_all_reduce() -> float:
    """Form the group that the environment describes, all-reduce; returns the time on the machine's clock."""
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    done = time.monotonic()
    assert x.item() == dist.get_world_size()
    dist.destroy_process_group()
    return done


def spawned(rank: int, world_size: int, port: int, answers: Any) -> None:
    """The same in a process that `torch.multiprocessing.spawn` has started."""
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    answers.put(first_all_reduce())


if __name__ == "__main__":
    sys.stdout.write(f"{first_all_reduce()}\n")  # in one piece: four ranks share the pipe
