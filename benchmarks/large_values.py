"""A tensor of 256 MiB on its way: from one rank to the notebook, from the notebook to four ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from . import peers
from .model import OURS, Benchmark, Contender, faster, no_more_than
from .notebook import WORLD_SIZE

NUMEL = 64 * 2**20  # of 4 bytes each
MAKE = f"import torch\nx = torch.arange({NUMEL}, dtype=torch.int32)"


def our_pull() -> Iterator[float]:
    import fourranks

    with fourranks.start(WORLD_SIZE) as group:
        group.execute(MAKE, ranks=[0])
        yield from _timed(lambda: group.pull("x", ranks=[0])[0])


def our_push() -> Iterator[float]:
    import fourranks

    with fourranks.start(WORLD_SIZE) as group:
        x = _tensor()
        yield from _timed(lambda: group.push(x=x) or x)


def ipyparallel_pull() -> Iterator[float]:
    with peers.engines() as (_, client):
        client[0].execute(MAKE, block=True)
        yield from _timed(lambda: client[0].pull("x", block=True))


def ipyparallel_push() -> Iterator[float]:
    with peers.engines() as (_, client):
        x = _tensor()
        yield from _timed(lambda: client[:].push({"x": x}, block=True) and x)


def copy() -> Iterator[float]:
    """Time one copy within a process: the least that any way of bringing a tensor needs."""
    x = _tensor()
    yield from _timed(x.clone)


def _timed(bring: Callable[[], Any]) -> Iterator[float]:
    """Seconds until the tensor is there and its first and last element have been looked at."""
    while True:
        began = time.perf_counter()
        x = bring()
        ends = x[0].item(), x[-1].item()
        seconds = time.perf_counter() - began
        assert ends == (0, NUMEL - 1)
        del x
        yield seconds


def _tensor() -> Any:
    import torch

    return torch.arange(NUMEL, dtype=torch.int32)


BENCHMARKS = (
    Benchmark(
        "pull of a 256 MiB tensor from one rank",
        (
            Contender(OURS, our_pull),
            Contender("ipyparallel, `pull`", ipyparallel_pull, faster(5)),
            Contender("`clone()` in one process", copy, no_more_than(2)),
        ),
        repeats=5,
    ),
    Benchmark(
        "push of a 256 MiB tensor to 4 ranks",
        (
            Contender(OURS, our_push),
            Contender("ipyparallel, `push`", ipyparallel_push, faster(10)),
            Contender("`clone()` in one process", copy),
        ),
        repeats=5,
    ),
)
