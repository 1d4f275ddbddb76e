"""A world of 32 ranks: how soon it is ready, and the memory that it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

from .model import OURS, Benchmark, Contender, at_most
from .notebook import ALL_REDUCE

WORLD_SIZE = 32


def seconds() -> Iterator[float]:
    import fourranks
    from fourranks import zygote

    zygote.shared().ready()
    while True:
        began = time.monotonic()
        with fourranks.start(WORLD_SIZE) as group:
            group.execute(f"{ALL_REDUCE}assert x.item() == {WORLD_SIZE}")
            yield time.monotonic() - began


def memory() -> Iterator[float]:
    yield from _bytes("pss")


def swap() -> Iterator[float]:
    yield from _bytes("swap")


def _bytes(kind: str) -> Iterator[float]:
    """Bytes of the ranks and the process they are forked from; pages that several share count once."""
    import fourranks

    with fourranks.start(WORLD_SIZE) as group:
        group.execute(ALL_REDUCE)
        while True:
            processes = psutil.Process().children(recursive=True)
            yield float(sum(getattr(process.memory_full_info(), kind) for process in processes))


BENCHMARKS = (
    Benchmark(
        "32 ranks ready, first all-reduce done, zygote warm",
        (Contender(OURS, seconds, at_most(1, "s")),),
        repeats=3,
    ),
    Benchmark(
        "memory of 32 ranks after it (PSS, with the zygote)", (Contender(OURS, memory),), repeats=1, unit="B"
    ),
    Benchmark("of that, in swap", (Contender(OURS, swap, at_most(0, "B")),), repeats=1, unit="B"),
)
