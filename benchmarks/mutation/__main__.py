"""`python -m benchmarks.mutation [--topic TOPIC] [--function NAME] [--only NUMBER]`: tells who survives.

A run without options also writes its table to `benchmarks/mutation.md`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from . import exercise, report
from .mutants import mutants
from .world import TIMEOUT, Judgement, Lane, examined

RESULTS = Path(__file__).parent.with_name("mutation.md")


def chosen_topics(start: str) -> list[str]:
    """The topics whose name starts so."""
    topics = [topic for topic in exercise.topics() if topic.startswith(start)]
    if not topics:
        sys.exit(f"There is no topic {start}; there are {', '.join(exercise.topics())}.")
    return topics


def judgements(topic: str, options: argparse.Namespace) -> Iterator[Judgement]:
    """Judgements of a topic's mutants as they come, telling of each survivor."""
    read = exercise.read(topic)
    wanted = [mutant for mutant in mutants(read) if mutant.function.startswith(options.function)]
    if options.only is not None:
        wanted = wanted[options.only : options.only + 1]
    _check_reference(read, options.timeout)
    for number, judgement in enumerate(examined(read, wanted, options.jobs, options.timeout)):
        if report.is_survivor(judgement):
            print(f"survived: {judgement.mutant}", flush=True)
        if options.only is not None:
            print(judgement.mutant.cell.source, judgement.verdict.text, sep="\n\n")
        if number % 50 == 49:
            print(f"{topic}: {number + 1} of {len(wanted)}", file=sys.stderr, flush=True)
        yield judgement


def _check_reference(read: exercise.Exercise, timeout: float) -> None:
    lane = Lane(timeout)
    try:
        verdict = lane.examine(read, None)
    finally:
        lane.close()
    if verdict.text:
        sys.exit(f"The reference of {read.topic} fails {verdict.test or 'its tests'}:\n{verdict.text}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation")
    parser.add_argument("--topic", default="", help="one topic, such as 02 (all)")
    parser.add_argument("--function", default="", help="functions whose names start so (all)")
    parser.add_argument("--only", type=int, help="one mutant, by its number among those, shown in full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (one a core)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help=f"seconds for a call ({TIMEOUT:g})")
    options = parser.parse_args()
    judged = [each for topic in chosen_topics(options.topic) for each in judgements(topic, options)]
    text = report.text(judged, f"python -m benchmarks.mutation {' '.join(sys.argv[1:])}".strip())
    print(text)
    if not sys.argv[1:]:
        RESULTS.write_text(text, encoding="utf-8")
    if report.share_caught(judged) < report.ENOUGH:
        sys.exit("Too many mutants survived.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted; the survivors until then are above.")
