"""`python -m benchmarks.compat [PYTHON:TORCH ...] [--steps tests,graded,traffic] [--keep]`: `make compat`.

Tries each pair in an environment of its own: fourranks' tests, two graded submissions to each exercise, the
traffic of Gloo. The results are kept in `results.json`, and `docs/compat.md` gets a new table of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import report
from .trial import STEPS, Pair, Trial

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TORCHES = ("2.13.0", "2.14.1", "2.15.0")


def main() -> int:
    """Run the trials; returns 1 if something did not go as with the others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compat", description=__doc__.split("\n")[0])
    parser.add_argument("pairs", nargs="*", type=_pair, help="such as 3.13:2.15.0, /usr/bin/python3:2.14.1")
    parser.add_argument("--steps", type=_steps, default=tuple(STEPS), help=f"of {','.join(STEPS)}")
    parser.add_argument("--folder", type=Path, default=Path(".venv/compat"), help="for the environments")
    parser.add_argument("--keep", action="store_true", help="leave them there: 6 GB each with CUDA")
    options = parser.parse_args()
    pairs = options.pairs or [Pair(python, torch) for python in PYTHONS for torch in TORCHES]
    problems = []
    for pair in pairs:
        trial = Trial(pair, options.folder.resolve())
        try:
            result = trial.run(options.steps)
        except RuntimeError as error:
            print(f"{pair}: {error}", file=sys.stderr)
            problems += [str(pair)] if options.pairs else []
            continue
        finally:
            if not options.keep:
                trial.remove()
        report.add(result)
        problems += report.problems(result)
    print("\n".join(problems) or "Everything went as it should.")
    return 1 if problems else 0


def _pair(text: str) -> Pair:
    python, _, torch = text.rpartition(":")
    if not python:
        raise argparse.ArgumentTypeError(f"{text} is no PYTHON:TORCH, such as 3.13:2.15.0")
    return Pair(python, torch)


def _steps(text: str) -> tuple[str, ...]:
    steps = tuple(text.split(","))
    if unknown := set(steps) - set(STEPS):
        named = ", ".join(sorted(unknown))
        raise argparse.ArgumentTypeError(f"there is no step {named}: choose of {', '.join(STEPS)}")
    return steps


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted; what was done until then is in docs/compat.md.")
