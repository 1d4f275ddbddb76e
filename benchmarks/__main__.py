"""`python -m benchmarks [MODULE ...]`: measures everything, or some modules, and prints the table.

A run of everything also writes it to `benchmarks/results.md`, and the lines that the README quotes there.
"""

from __future__ import annotations

import importlib
import itertools
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import readme, table
from .contender import PEERS, Session
from .model import Benchmark, Result

MODULES = (
    "start",
    "cell",
    "large_values",
    "deadlock",
    "soak",
    "large_world",
    "analysis",
    "check",
    "submission",
    "overhead",
    "program",
    "data_parallelism",
    "sharded_data_parallelism",
    "tensor_parallelism",
    "pipeline_parallelism",
    "dashboard",
    "bandwidth",
)
RESULTS = Path(__file__).with_name("results.md")
README = Path(__file__).parent.parent / "README.md"

_numbers = itertools.count()


def measure(benchmark: Benchmark) -> list[Result]:
    """Measure the contenders in turns, so that whatever else the machine does hits all alike."""
    print(f"measuring: {benchmark.title}", file=sys.stderr, flush=True)
    results = [Result(contender) for contender in benchmark.contenders]
    sessions = [Session(contender, next(_numbers)) for contender in benchmark.contenders]
    try:
        for _ in range(benchmark.repeats):
            for result, session in zip(results, sessions, strict=True):
                if not result.reason and result.spent < benchmark.enough:
                    _take(result, session, benchmark.patience)
    finally:
        for result, session in zip(results, sessions, strict=True):
            if left := session.close():
                print(f"{result.contender.name} left behind: {', '.join(left)}", file=sys.stderr)
    return results


def _take(result: Result, session: Session, patience: float) -> None:
    began = time.monotonic()
    answer = session.measure(patience)
    result.spent += time.monotonic() - began
    if isinstance(answer, str):
        result.reason, result.values = answer, []
    else:
        result.values.append(answer)


def lines(modules: list[str], command: str) -> Iterator[str]:
    """The Markdown, piece by piece as it is measured."""
    yield table.head(command)
    yield table.COLUMNS
    for name in modules:
        for benchmark in importlib.import_module(f"benchmarks.{name}").BENCHMARKS:
            yield table.rows(benchmark, measure(benchmark))


def main(modules: list[str]) -> None:
    if unknown := set(modules).difference(MODULES):
        sys.exit(f"There is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}.")
    if PEERS.exists():
        sys.path.append(str(PEERS))  # for their versions
    command = f'make bench ARGS="{" ".join(modules)}"' if modules else "make bench"
    pieces = []
    for piece in lines(modules or list(MODULES), command):
        print(piece, flush=True)
        pieces.append(piece)
    if not modules:
        measured = "\n".join(pieces) + "\n"
        RESULTS.write_text(measured, encoding="utf-8")
        README.write_text(readme.refreshed(README.read_text(encoding="utf-8"), measured), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the contenders are ended, too
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("Interrupted; what was measured until then is above.")
