"""The folder of evidence: a log of each step, its outcome, and a page that sums it up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .plan import Step

PAGE = "README.md"
_STATE = "state.json"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step.

    Attributes:
        result: "passed", "failed with code 1", "did not end in time", or why it was not run.
        backend: that `auto` stood for.
        commit: of the course.
    """

    result: str
    seconds: float
    backend: str
    date: str
    commit: str

    @property
    def passed(self) -> bool:
        return self.result == "passed"


class Evidence:
    """A folder, in which a step that has passed need not be taken again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of each step that was taken, by its name."""
        try:
            kept = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {name: Outcome(**outcome) for name, outcome in kept.items()}

    def has_passed(self, step: Step, backend: str, commit: str) -> bool:
        """Return whether this step has passed on this backend, with the course as it is now."""
        outcome = self.outcomes.get(step.name)
        if outcome is None or not outcome.passed:
            return False
        return (outcome.backend, outcome.commit) == (backend, commit)

    def log(self, step: Step) -> Path:
        """Return the file for what a step prints."""
        return self.folder / f"{step.name}.log"

    def keep(self, step: Step, outcome: Outcome) -> None:
        """Add what came of a step, whole or not at all."""
        kept = {name: asdict(each) for name, each in (self.outcomes | {step.name: outcome}).items()}
        partial = self.folder / f".{_STATE}"
        partial.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.folder / _STATE)

    def write_page(self, steps: Iterable[Step]) -> None:
        """Write the page: a line for each step, and the machine as the first step has described it."""
        outcomes = self.outcomes
        rows = [_row(step, outcomes.get(step.name)) for step in steps]
        head = "| step | result | backend | seconds | date | commit |\n|---|---|---|---|---|---|"
        described = self.folder / "versions.log"
        machine = described.read_text(encoding="utf-8") if described.exists() else ""
        text = "\n".join(["# Evidence of `make gpu`", "", head, *rows, "", machine])
        (self.folder / PAGE).write_text(text, encoding="utf-8")


def _row(step: Step, outcome: Outcome | None) -> str:
    if outcome is None:
        return f"| {step.title} | not taken yet | | | | |"
    log = f"[{outcome.result}]({step.name}.log)"
    figures = f"{outcome.seconds:.0f} | {outcome.date} | {outcome.commit}"
    return f"| {step.title} | {log} | {outcome.backend} | {figures} |"
