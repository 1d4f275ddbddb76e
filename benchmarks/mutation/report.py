"""Makes the mutation run's table, and the lists below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks import table as benchmark_table

from . import equivalents
from .mutants import Mutant
from .world import Judgement

ENOUGH = 0.95  # of the mutants that are faults, the share that must be caught
COLUMNS = "| function | mutants | caught | equivalent | survived |\n" + "|---" * 5 + "|"
NOTES = """\
A mutant is a reference solution with one small fault: another operator, constant, index or bound, a dropped
condition, argument, wait or call, a doubled collective, two calls swapped. It is caught when a test cell of
its exercise fails, with the arguments of the visible and of the hidden tests. "Equivalent": it survived, and
what it does cannot be told from what the reference does; the reasons are below."""


def share_caught(judgements: Iterable[Judgement]) -> float:
    """Return the share of mutants that were caught, of those that are faults."""
    faults = [judgement for judgement in judgements if not is_equivalent(judgement)]
    return sum(judgement.is_caught for judgement in faults) / max(len(faults), 1)


def is_equivalent(judgement: Judgement) -> bool:
    """Whether a mutant survived because it is no fault."""
    return not judgement.is_caught and bool(equivalents.reason(judgement.mutant))


def is_survivor(judgement: Judgement) -> bool:
    """Whether a mutant is a fault that no test catches."""
    return not judgement.is_caught and not is_equivalent(judgement)


def text(topic: str, judgements: Sequence[Judgement], command: str) -> str:
    """All counts of a topic by function, then each mutant that was not just caught."""
    functions = dict.fromkeys(j.mutant.function for j in judgements)
    rows = [
        _row(f"`{function}`", [j for j in judgements if j.mutant.function == function])
        for function in functions
    ]
    return "\n".join(
        [
            benchmark_table.head(command, f"Small faults in the solutions of {topic}", NOTES, ("torch",)),
            COLUMNS,
            *rows,
            _row("**all**", judgements),
            "",
            f"Caught: {share_caught(judgements):.1%} of those that are not equivalent (hold ≥ {ENOUGH:.0%}).",
            *_list("Survivors", filter(is_survivor, judgements), lambda j: j.verdict.text or j.mutant.fault),
            *_list(
                "Caught, but by an error in place of a check's verdict",
                (j for j in judgements if j.is_caught and not j.verdict.is_told),
                lambda j: j.verdict.text,
            ),
            *_list(
                "Listed as equivalent, but caught",
                (j for j in judgements if j.is_caught and equivalents.reason(j.mutant)),
                lambda j: j.verdict.mistake,
            ),
            *_list("Equivalent", filter(is_equivalent, judgements), lambda j: equivalents.reason(j.mutant)),
            "",
        ]
    )


def _row(function: str, judgements: Sequence[Judgement]) -> str:
    counts = [
        len(judgements),
        sum(judgement.is_caught for judgement in judgements),
        sum(map(is_equivalent, judgements)),
        sum(map(is_survivor, judgements)),
    ]
    return f"| {' | '.join([function, *map(str, counts)])} |"


def _list(title: str, judgements: Iterable[Judgement], remark: Callable[[Judgement], str]) -> list[str]:
    lines = [f"- {_described(judgement.mutant)}: {remark(judgement)}" for judgement in judgements]
    return ["", f"## {title}", "", *lines] if lines else []


def _described(mutant: Mutant) -> str:
    return f"line {mutant.line}, {mutant.function}: `{mutant.before}` → `{mutant.after}`"
