"""The round trip of a cell that does nothing, on four ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from . import peers
from .model import OURS, Benchmark, Contender, faster
from .notebook import WORLD_SIZE, run

IN_A_ROW = 20  # their median is one measurement: the first finds the processes cold


def four_ranks() -> Iterator[float]:
    run("%load_ext fourranks")
    run(f"%ranks start -n {WORLD_SIZE}")
    yield from _round_trips("%%ranks\npass")


def ipyparallel() -> Iterator[float]:
    with peers.engines():
        yield from _round_trips("%%px\npass")


def nbdistributed() -> Iterator[float]:
    with peers.nbdistributed_workers():
        yield from _round_trips("pass")


def ray_actors() -> Iterator[float]:
    with peers.actors():
        yield from _round_trips('_ = ray.get([actor.run.remote("pass") for actor in actors])')


def _round_trips(cell: str) -> Iterator[float]:
    run(cell)  # the first imports what it needs
    while True:
        yield statistics.median(_seconds(cell) for _ in range(IN_A_ROW))


def _seconds(cell: str) -> float:
    began = time.perf_counter()
    run(cell)
    return time.perf_counter() - began


BENCHMARKS = (
    Benchmark(
        f"round trip of the cell `pass` on 4 ranks, {IN_A_ROW} in a row",
        (
            Contender(OURS, four_ranks),
            Contender("ipyparallel, `%%px`", ipyparallel, faster(12)),
            Contender("nbdistributed", nbdistributed),
            Contender("Ray, a call of an actor for each rank", ray_actors, faster(2)),
        ),
        repeats=5,
    ),
)
