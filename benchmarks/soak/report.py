"""Makes the soak's table, and the text that tells of one program."""

from __future__ import annotations

import statistics
import traceback
from collections import Counter

from benchmarks import table as benchmark_table

from .judge import Judgement, Verdict

COLUMNS = (
    "| fault | programs | completed | detected | timed out "
    "| missed | false alarms | ranks lost | not usable after |"
)


def problem(judgement: Judgement) -> str:
    """One program, its forecast and its end; it runs as a cell with HELPERS before it."""
    trial, outcome = judgement.trial, judgement.outcome
    error = "".join(traceback.format_exception_only(outcome.error)) if outcome.error else "no error"
    parts = [
        f"## {judgement.verdict.value}{', not usable after' if outcome.unusable else ''}"
        f"{', all ranks started again' if outcome.restarted else ''}: "
        f"seed {trial.seed}, program {trial.number}, {trial.program.world_size} ranks",
        f"fault: {trial.fault or 'none'}; it {trial.forecast.fate.value} {trial.forecast.reason}".rstrip(),
        trial.program.source,
        f"came to: {error}",
        f"seconds to the error: {outcome.seconds_to_error}, to usable: {outcome.seconds_to_usable}",
        f"afterwards: {outcome.unusable}" if outcome.unusable else "",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def table(judgements: list[Judgement], command: str) -> str:
    """All counts by fault, and the times of the deadlocks."""
    faults = sorted({judgement.trial.fault for judgement in judgements})
    rows = [_row(fault or "none", [j for j in judgements if j.trial.fault == fault]) for fault in faults]
    return "\n".join(
        [
            benchmark_table.head(command, "Random programs, half of them with a fault", NOTES, ("torch",)),
            COLUMNS,
            "|---" * 9 + "|",
            *rows,
            _row("**all**", judgements),
            "",
            *_times(judgements),
            "",
        ]
    )


NOTES = """\
Each program is drawn from the seed; every second one has one fault planted on one rank. What must become of
it is known from a simulation of its ranks. "Completed" counts faults that do no harm, two equal calls swapped
for instance. "Detected": it got stuck, or its ranks contradicted each other, and an error said so. "Timed
out": the same, but a rank asked again and again whether a call was over; that this is in vain cannot be
proven, and the timeout ended it. "Missed": no error came, or only that of the timeout. "Ranks lost": a
process ended that no fault had killed. After every program the ranks must communicate and have their
variables. Counts are what matters: the machine may have been busy with other things."""


def _row(name: str, judgements: list[Judgement]) -> str:
    verdicts = Counter(judgement.verdict for judgement in judgements)
    counts = [len(judgements), *(verdicts[verdict] for verdict in Verdict)]
    counts.append(sum(bool(judgement.outcome.unusable) for judgement in judgements))
    return f"| {name} | {' | '.join(map(str, counts))} |"


def _times(judgements: list[Judgement]) -> list[str]:
    deadlocks = [judgement.outcome for judgement in judgements if judgement.is_deadlock]
    to_error = [outcome.seconds_to_error for outcome in deadlocks]
    to_usable = [outcome.seconds_to_usable for outcome in deadlocks]
    return [
        f"{len(deadlocks)} deadlocks:",
        _quantiles("until the error is raised", to_error),
        _quantiles("until usable again", to_usable),
    ]


def _quantiles(what: str, measured: list[float | None]) -> str:
    seconds = [each for each in measured if each is not None]
    if len(seconds) < 2:
        return f"- from the last rank's getting stuck {what}: not measured"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    median, most, slowest = (benchmark_table.in_unit(s, "s") for s in (cuts[49], cuts[98], max(seconds)))
    return f"- from the last rank's getting stuck {what}: median {median}, 99 % in {most}, slowest {slowest}"
