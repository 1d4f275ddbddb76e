"""`python -m benchmarks.soak [--programs N] [--seed S] [--worlds N] [--only N]`: tells what did not go well.

A run of all programs also writes its table to `benchmarks/soak.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from . import report
from .judge import Judgement, Trial, soak, trial

PROGRAMS, SEED = 10_000, 1
WORLDS = 4  # at a time: most ranks wait most of the time
RESULTS = Path(__file__).parent.with_name("soak.md")


def judged(trials: Iterator[Trial], worlds: int) -> Iterator[Judgement]:
    """Judgements as they come, telling of each that is not good."""
    for count, judgement in enumerate(soak(trials, worlds), 1):
        if not judgement.is_good:
            print(report.problem(judgement), flush=True)
        if count % 100 == 0:
            print(f"{count} programs", file=sys.stderr, flush=True)
        yield judgement


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--programs", type=int, default=PROGRAMS, help=f"how many ({PROGRAMS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"draws other programs ({SEED})")
    parser.add_argument("--worlds", type=int, default=WORLDS, help=f"how many run at a time ({WORLDS})")
    parser.add_argument("--only", type=int, help="run one program, by its number, and show it")
    options = parser.parse_args()
    if options.only is not None:
        (judgement,) = soak([trial(options.seed, options.only)])
        print(report.problem(judgement))
        return
    trials = (trial(options.seed, number) for number in range(options.programs))
    judgements = list(judged(trials, options.worlds))
    table = report.table(judgements, f"python -m benchmarks.soak {' '.join(sys.argv[1:])}".strip())
    print(table)
    if options.programs >= PROGRAMS:
        RESULTS.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted; all failures until then are above.")
