"""`python -m benchmarks.gpu`: takes the steps that have not passed yet, and lists those that fail.

Without a GPU it shows its plan. `--without-gpu` then takes the steps that can be taken on Gloo: this shows
that the command works, and nothing about GPUs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fourranks import zygote
from fourranks.placement import BACKEND_NAMES, can_host_nccl, newer_nccl

from . import run
from .evidence import PAGE, Evidence
from .plan import COURSE, Step, plan

WORLD_SIZE = 4  # of most lectures


def main(words: Sequence[str] | None = None) -> int:
    """Take the steps; returns the exit code, 1 where one fails or there is no GPU."""
    options = _parser().parse_args(words)
    gpus = zygote.shared().gpus()
    zygote.stop_shared()
    backend = "nccl" if can_host_nccl(WORLD_SIZE, gpus) else "gloo"
    steps = [step for step in plan(options.folder) if not options.only or options.only in step.name]
    print(f"GPUs: {', '.join(gpus.names) or 'none'}. Lectures and checks run on {BACKEND_NAMES[backend]}.")
    if gpus.count and backend == "gloo":
        print(f"For NCCL on {WORLD_SIZE} ranks, first: .venv/bin/{newer_nccl(gpus)}")
    if options.plan or not (gpus.count or options.without_gpu):
        print(_shown(steps, gpus.count))
        if not gpus.count:
            print("No GPU. `make gpu ARGS=--without-gpu` takes the steps that need none, on Gloo.")
        return 0 if options.plan else 1
    evidence = Evidence(options.folder)
    _take_all(steps, evidence, backend, gpus.count)
    evidence.write_page(plan(options.folder))
    return _summary(steps, evidence)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make gpu", description="Show how the course behaves on GPUs.")
    parser.add_argument("--plan", action="store_true", help="show the steps and take none")
    parser.add_argument("--without-gpu", action="store_true", help="take the steps that need no GPU, on Gloo")
    parser.add_argument("--only", default="", metavar="WORD", help="only steps with this word in their name")
    folder = COURSE / "evidence"
    parser.add_argument("--folder", type=Path, default=folder, help="the folder of evidence (evidence/)")
    return parser


def _shown(steps: Sequence[Step], gpus: int) -> str:
    rows = [
        f"  {step.name:<38}{f'up to {step.limit / 60:.0f} minutes':<20}{step.lacks(gpus)}".rstrip()
        for step in steps
    ]
    return "\n".join(["", *rows, ""])


def _take_all(steps: Sequence[Step], evidence: Evidence, backend: str, gpus: int) -> None:
    commit = run.commit()
    for number, step in enumerate(steps, start=1):
        head = f"[{number}/{len(steps)}] {step.title}: "
        if lack := step.lacks(gpus):
            print(f"{head}not run, {lack}")
        elif evidence.has_passed(step, backend, commit):
            print(f"{head}passed before")
        else:
            print(head, end="", flush=True)
            outcome = run.take(step, evidence.log(step), backend, commit)
            evidence.keep(step, outcome)
            print(f"{outcome.result} ({outcome.seconds:.0f} s)", flush=True)


def _summary(steps: Sequence[Step], evidence: Evidence) -> int:
    outcomes = evidence.outcomes
    missing = [step.title for step in steps if step.name not in outcomes]
    failed = [step for step in steps if step.name in outcomes and not outcomes[step.name].passed]
    print(f"\n{evidence.folder / PAGE}")
    if missing:
        print(f"Not run: {', '.join(missing)}")
    for step in failed:
        print(f"FAILED {step.title}: {outcomes[step.name].result}; see {evidence.log(step)}")
    print("Run it again to take what failed once more." if failed else "All steps taken have passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nInterrupted; run it again to go on with the next step.")
    except OSError as error:
        sys.exit(f"The evidence cannot be read or written: {error}")
