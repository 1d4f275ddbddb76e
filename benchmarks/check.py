"""One check of exercise 02, on its reference solution: the course's own, and as a test with mp.spawn.

The test draws the same cases and compares the same values. It knows nothing of traffic; the check does.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import spawned_tests
from .model import OURS, Benchmark, Contender, faster

EXERCISE = Path(__file__).parent.parent / "source" / "02_collectives" / "exercise.py"


def reference_solution() -> str:
    """The functions of the solved exercise, with the imports that they need."""
    kept = (ast.Import, ast.FunctionDef)
    nodes = [node for node in ast.parse(EXERCISE.read_text(encoding="utf-8")).body if isinstance(node, kept)]
    return "\n\n".join(map(ast.unparse, nodes))


def four_ranks() -> Iterator[float]:
    from autograder import check
    from fourranks import zygote

    notebook: dict[str, Any] = {"__name__": "__main__"}
    exec(reference_solution(), notebook)
    zygote.shared().ready()
    while True:
        began = time.monotonic()
        check.ring_all_reduce(notebook["ring_all_reduce"])
        yield time.monotonic() - began


def spawn() -> Iterator[float]:
    source = reference_solution()
    while True:
        began = time.monotonic()
        spawned_tests.compare(source, "ring_all_reduce")
        yield time.monotonic() - began


BENCHMARKS = (
    Benchmark(
        "one check of the exercise, `check.ring_all_reduce`, on the reference solution",
        (
            Contender(f"{OURS}: values and traffic", four_ranks),
            Contender("torch.multiprocessing.spawn: values", spawn, faster(75)),
        ),
        repeats=3,
    ),
)
