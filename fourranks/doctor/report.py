"""Findings of checks, and how all of them are printed. Knows nothing of the checks themselves."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..naming import counted


class Severity(Enum):
    OK = "ok"
    ATTENTION = "attention"  # works, but slower or less than it could
    PROBLEM = "problem"  # something of the course does not work here


@dataclass(frozen=True)
class Finding:
    """The outcome of a check."""

    severity: Severity
    found: str
    advice: str = ""  # what to do


@dataclass(frozen=True)
class Check:
    name: str
    run: Callable[[], Finding]


def report(checks: Sequence[Check], show: Callable[[str], None] = print) -> int:
    """Run the checks and show each finding as it comes; returns 1 if one is a problem, else 0."""
    columns = _Columns(max(len(check.name) for check in checks))
    severities: Counter[Severity] = Counter()
    for check in checks:
        finding = _outcome(check)
        severities[finding.severity] += 1
        show(columns.row(finding.severity.value, check.name, finding.found, finding.advice))
    show(_summary(severities))
    return 1 if severities[Severity.PROBLEM] else 0


def _outcome(check: Check) -> Finding:
    """Return what the check found; a check that fails itself does not keep the others from running."""
    try:
        return check.run()
    except Exception as error:
        return Finding(Severity.ATTENTION, f"This could not be checked: {type(error).__name__}: {error}")


class _Columns:
    """Lays out rows: severity, name, text, with the text wrapped in its column."""

    def __init__(self, name_width: int) -> None:
        self._widths = max(len(severity.value) for severity in Severity), name_width
        self._indent = " " * (sum(self._widths) + 4)
        self._width = min(110, max(80, shutil.get_terminal_size().columns))

    def row(self, severity: str, name: str, found: str, advice: str) -> str:
        head = f"{severity:<{self._widths[0]}}  {name:<{self._widths[1]}}  "
        paragraphs = [(head, line) for line in found.splitlines()[:1]]
        paragraphs += [(self._indent, line) for line in found.splitlines()[1:]]
        paragraphs += [(f"{self._indent}→ ", advice)] if advice else []
        return "\n".join(
            textwrap.fill(
                text,
                self._width,
                initial_indent=start,
                subsequent_indent=self._indent + "  " * start.endswith("→ "),
                break_on_hyphens=False,
            )
            for start, text in paragraphs
        )


def _summary(severities: Counter[Severity]) -> str:
    parts = [f"{severities[Severity.OK]} ok"]
    if attention := severities[Severity.ATTENTION]:
        parts.append(f"{attention} for your attention")
    if problems := severities[Severity.PROBLEM]:
        parts.append(counted(problems, "problem"))
    return "\n" + ", ".join(parts) + "."
