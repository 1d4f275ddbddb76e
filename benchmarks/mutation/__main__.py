"""`python -m benchmarks.mutation [--topic TOPIC] [--function NAME] [--only NUMBER]`: tells who survives.

The table of a whole topic is also written to a file of its own in `benchmarks/mutation/results/`.
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

RESULTS = Path(__file__).parent / "results"


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


def _share_caught(topic: str, options: argparse.Namespace) -> float:
    """Judges a topic, shows what became of its mutants, and keeps it if it was the whole topic."""
    judged = list(judgements(topic, options))
    text = report.text(topic, judged, f"python -m benchmarks.mutation --topic {topic}")
    print(text)
    if not options.function and options.only is None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{topic}.md").write_text(text, encoding="utf-8")
    return report.share_caught(judged)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation")
    parser.add_argument("--topic", default="", help="one topic, such as 02 (all)")
    parser.add_argument("--function", default="", help="functions whose names start so (all)")
    parser.add_argument("--only", type=int, help="one mutant, by its number among those, shown in full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (one a core)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help=f"seconds for a call ({TIMEOUT:g})")
    options = parser.parse_args()
    shares = {topic: _share_caught(topic, options) for topic in chosen_topics(options.topic)}
    if too_few := [topic for topic, share in shares.items() if share < report.ENOUGH]:
        sys.exit(f"Too many mutants survived in {', '.join(too_few)}.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted; the survivors until then are above.")
