"""Step time of a training script that `fourranks run` starts, beside the same under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .model import OURS, Benchmark, Contender, no_more_than

SCRIPT = Path(__file__).with_name("ddp_script.py")
WORLD_SIZE = 2


def four_ranks() -> Iterator[float]:
    return _steps([sys.executable, "-m", "fourranks", "run", "-n", str(WORLD_SIZE)])


def torchrun() -> Iterator[float]:
    options = ["--standalone", f"--nproc-per-node={WORLD_SIZE}"]
    return _steps([sys.executable, "-m", "torch.distributed.run", *options])


def _steps(launcher: list[str]) -> Iterator[float]:
    """Run the script again and again, with one thread a rank as torchrun has it; yields its median step."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    while True:
        ended = subprocess.run([*launcher, str(SCRIPT)], capture_output=True, text=True, env=environment)
        if ended.returncode != 0:
            raise RuntimeError((ended.stderr.strip() or "no message").splitlines()[-1])
        yield float(ended.stdout.split()[-1])


BENCHMARKS = (
    Benchmark(
        f"a step of a DDP training script on {WORLD_SIZE} ranks, started by `fourranks run`; median of 150",
        (Contender(OURS, four_ranks), Contender("torchrun", torchrun, no_more_than(1.02))),
        repeats=7,
    ),
)
