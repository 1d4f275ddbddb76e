"""How long until four ranks are ready and have done their first all-reduce: warm, and from a cold process."""

from __future__ import annotations

import compileall
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import peers
from .model import OURS, Benchmark, Contender, faster, no_more_than
from .notebook import ALL_REDUCE, CHECK, WORLD_SIZE, run

COURSE = Path(__file__).parent.parent
SCRIPT = Path(__file__).with_name("first_all_reduce.py")
FIRST_CELL = f"%%ranks\n{ALL_REDUCE}{CHECK}"
COLD_NOTEBOOK = f"""
import time
from benchmarks.notebook import run
run("%load_ext fourranks")
run("%ranks start -n {WORLD_SIZE}")
run({FIRST_CELL!r})
print(time.monotonic())
"""
IMPORT_TORCH = "import time, torch; print(time.monotonic())"


def four_ranks() -> Iterator[float]:
    from fourranks import zygote

    run("%load_ext fourranks")
    zygote.shared().ready()
    while True:
        began = time.monotonic()
        run(f"%ranks start -n {WORLD_SIZE}")
        run(FIRST_CELL)
        yield time.monotonic() - began
        run("%ranks stop")


def ipyparallel() -> Iterator[float]:
    while True:
        began = time.monotonic()
        with peers.engines() as (_, client):
            peers.all_reduce_on_engines(client)
            yield time.monotonic() - began


def nbdistributed() -> Iterator[float]:
    while True:
        began = time.monotonic()
        with peers.nbdistributed_workers() as magics:
            run(ALL_REDUCE)
            took = time.monotonic() - began
            peers.check_on_workers(magics)
            yield took


def spawn() -> Iterator[float]:
    from torch import multiprocessing

    from .first_all_reduce import spawned

    while True:
        answers = multiprocessing.get_context("spawn").SimpleQueue()
        began = time.monotonic()
        ranks = multiprocessing.spawn(
            spawned, args=(WORLD_SIZE, peers.free_port(), answers), nprocs=WORLD_SIZE, join=False
        )
        done = max(answers.get() for _ in range(WORLD_SIZE))
        while not ranks.join():
            pass
        yield done - began


def torchrun() -> Iterator[float]:
    options = ["--standalone", f"--nproc-per-node={WORLD_SIZE}"]
    while True:
        yield _seconds([sys.executable, "-m", "torch.distributed.run", *options, str(SCRIPT)])


def four_ranks_cold() -> Iterator[float]:
    compileall.compile_dir(COURSE / "fourranks", quiet=1)  # as its first import ever does, where it may
    while True:
        yield _seconds([sys.executable, "-c", COLD_NOTEBOOK])


def import_torch() -> Iterator[float]:
    while True:
        yield _seconds([sys.executable, "-c", IMPORT_TORCH])


def _seconds(command: list[str]) -> float:
    """From the start of a command to the last time that it has printed."""
    began = time.monotonic()
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError((ended.stderr.strip() or "no message").splitlines()[-1])
    return max(float(line) for line in ended.stdout.splitlines() if line.replace(".", "").isdigit()) - began


BENCHMARKS = (
    Benchmark(
        "4 ranks ready, first all-reduce done, zygote warm",
        (
            Contender(OURS, four_ranks),
            Contender("ipyparallel, torch imported on its engines", ipyparallel, faster(150)),
            Contender("nbdistributed", nbdistributed),
            Contender("torch.multiprocessing.spawn", spawn),
            Contender("torchrun", torchrun),
        ),
        repeats=3,
    ),
    Benchmark(
        "the same from a cold Python process",
        (
            Contender(OURS, four_ranks_cold),
            Contender('python -c "import torch"', import_torch, no_more_than(1.2)),
        ),
        repeats=3,
    ),
)
