"""Whether `fourranks.bench` measures what is there: its busbw beside a bare loop's, on the same ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from .model import OURS, Benchmark, Contender, Hold

WORLD_SIZE, NBYTES = 4, 16 << 20
TURNS, CALLS = 20, 5  # in one measurement: how often they take turns, and the calls that each times in a turn

within_3_percent = Hold("within 3 %", lambda ours, _: abs(ours - 1) <= 0.03)


def loop_by_bench(nbytes: int, turns: int, calls: int) -> float:
    """Runs on each rank: the time of a call in a bare loop, divided by what the benchmark says."""
    import torch
    import torch.distributed as dist

    from fourranks.bench import measure

    def loop() -> float:
        x = torch.zeros(nbytes // 4)
        dist.all_reduce(x)
        dist.barrier()
        began = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        return (time.perf_counter() - began) / calls

    def bench() -> float:
        return measure("all_reduce", nbytes, warmup=1, iterations=1, calls=calls).seconds

    by_loop, by_bench = [], []
    for turn in range(turns):
        measured = [(loop, by_loop), (bench, by_bench)]
        for measurement, seconds in measured if turn % 2 else reversed(measured):
            seconds.append(measurement())
    slowest = torch.tensor(by_loop, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return statistics.median(slowest.tolist()) / statistics.median(by_bench)


def bench_by_loop() -> Iterator[float]:
    import fourranks

    with fourranks.start(WORLD_SIZE, "gloo") as world:
        while True:
            yield world.run(loop_by_bench, NBYTES, TURNS, CALLS)[0]


BENCHMARKS = (
    Benchmark(
        f"busbw of an all-reduce of {NBYTES >> 20} MiB on {WORLD_SIZE} ranks by `fourranks.bench`, divided "
        "by that of a bare torch loop (the same ranks, in turns)",
        (Contender(OURS, bench_by_loop, within_3_percent),),
        repeats=9,
        unit="",
    ),
)
