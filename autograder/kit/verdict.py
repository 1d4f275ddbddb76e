"""The display of a check: one line when all cases pass, else a small table and a hint.

In a notebook it is a table of HTML, with the same as plain text next to it; everywhere else the text is
enough. All that came out of a student's code is escaped.
"""

from __future__ import annotations

import contextlib
import re
import statistics
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from textwrap import fill, indent

from autograder.kit import hints
from autograder.kit.case import Result
from autograder.kit.mistakes import NOT_RECEIVED, Mistake
from fourranks.naming import counted

MAX_ROWS = 3
_COLUMNS = ("case", "backend", "expected", "got")
_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
_WIDTH = 100
# A coloured bar beside text in the page's own colour: no red or green is readable in light and dark themes.
_HEADLINE = "margin:.3em 0;padding-left:.5em;font-weight:600;border-left:.4em solid "


_collected: ContextVar[list[Verdict] | None] = ContextVar("where verdicts are collected", default=None)


class CheckFailed(AssertionError):
    """A failed check; its text is the whole verdict, for nbgrader and for terminals."""

    def __init__(self, verdict: Verdict, shown: bool) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints in place of a traceback: nothing twice that is on the page."""
        text = self.verdict.headline if self._shown else str(self.verdict)
        return [f"\x1b[31mAssertionError\x1b[0m: {text}"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check, ready to be shown.

    Attributes:
        not_run: cases that were left out after others had failed.
    """

    name: str
    results: Sequence[Result]
    seed: int
    seconds: float
    not_run: int = 0

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.problem is not None]

    @property
    def share(self) -> Fraction:
        """The share of the points: all or none, unless some cases count alone."""
        cases = {id(result.case): result.case for result in self.results}
        wrong = {id(result.case) for result in self.failed}  # on one backend of two, or on both
        right = [case for number, case in cases.items() if number not in wrong]
        if wrong and not any(case.counts_alone for case in right):
            return Fraction(0)
        return Fraction(len(right), len(cases) + self.not_run)

    @property
    def ranks(self) -> bool:
        """Whether a class is ranked by its cost."""
        return any(result.case.ranks for result in self.results)

    @property
    def cost(self) -> float | None:
        """The mean of what the cases that rank have cost; None unless each has come to a cost."""
        costs = [result.case.cost for result in self.results if result.case.ranks]
        known = [cost for cost in costs if cost is not None]
        return statistics.mean(known) if known and len(known) == len(costs) else None

    @property
    def mistake(self) -> Mistake:
        """The mistake in the most telling case; NOT_RECEIVED only where nothing else is wrong."""
        return max(self.failed, key=_significance).fault.mistake

    @property
    def hint(self) -> str:
        return hints.choose(
            self.mistake, self.failed, [result for result in self.results if not result.problem]
        )

    @property
    def headline(self) -> str:
        if self.failed:
            share = f"{len(self.failed)} of {counted(len(self.results), 'case')}"
            return f"{self.name}: {self.mistake.title} ({share} failed)"
        sizes = ", ".join(map(str, sorted({result.case.world_size for result in self.results})))
        backends = ", ".join(dict.fromkeys(result.backend for result in self.results))
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        return (
            f"{self.name}: passed, {counted(len(self.results), 'case')}{cost} "
            f"({sizes} rank{'s' * (sizes != '1')}; {backends}; {self.seconds:.1f} s)"
        )

    def __str__(self) -> str:
        if not self.failed:
            return self.headline
        parts = [self.headline]
        for row in self._rows():
            case, backend, expected, got = row
            parts.append(f"\n  {case} ({backend})\n    expected  {expected}\n    got       {_indented(got)}")
        if printed := self._printed:
            title, text = printed
            parts.append(f"\n  {title}\n{indent(text, '    ')}")
        return "\n".join([*parts, "", *self._notes(wrap=True)])

    def _repr_html_(self) -> str:
        head = f'<p style="{_HEADLINE}{"#d9402f" if self.failed else "#268a4a"}">{escape(self.headline)}</p>'
        if not self.failed:
            return head
        header = "".join(f'<th style="text-align:left">{column}</th>' for column in _COLUMNS)
        body = "".join(map(_html_row, self._rows()))
        notes = "".join(
            f'<p style="margin:.3em 0">{_html_note(note)}</p>' for note in self._notes(wrap=False)
        )
        return f"{head}<table><tr>{header}</tr>{body}</table>{_html_printed(self._printed)}{notes}"

    @property
    def _shown(self) -> list[Result]:
        """A few failed cases, the headline's mistake first, empty tensors last; one long story.

        Of cases that would say the same, one is enough.
        """
        telling = sorted(
            self.failed, key=lambda r: (r.fault.mistake is not self.mistake, not r.case.weight[0])
        )
        different: dict[tuple[str, str], Result] = {}
        for result in telling:
            different.setdefault((result.fault.expected, result.fault.got), result)
        return list(different.values())[: 1 if "\n" in telling[0].fault.got else MAX_ROWS]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (str(result.case), result.backend, result.fault.expected, result.fault.got)
            for result in self._shown
        ]

    @property
    def _printed(self) -> tuple[str, str] | None:
        """A title and what the ranks printed in the smallest failed case; empty tensors come last."""
        printing = [result for result in self.failed if result.printed]
        if not printing:
            return None
        smallest = min(printing, key=lambda result: (not result.case.weight[0], result.case.weight))
        return f"Printed by the ranks ({smallest.case}, {smallest.backend}):", smallest.printed

    def _notes(self, wrap: bool) -> list[str]:
        more = len(self.failed) - len(self._shown)
        notes = [f"{counted(more, 'more case')} failed."] if more > 0 else []
        notes += [f"What passed is worth {float(self.share):.0%} of the points."] if self.share else []
        notes += [f"Hint: {self.hint}", f"The inputs were drawn with seed={self.seed}."]
        return [fill(note, _WIDTH) for note in notes] if wrap else notes


def _significance(result: Result) -> tuple[bool, tuple[int, int]]:
    return result.fault.mistake is not NOT_RECEIVED, result.case.weight


def show(verdict: Verdict) -> None:
    """Show the verdict where the reader is, and raise CheckFailed if a case failed."""
    if (collected := _collected.get()) is not None:
        collected.append(verdict)
    shown = _shows_displays()
    if shown:
        from IPython.display import display

        display({"text/plain": str(verdict), "text/html": verdict._repr_html_()}, raw=True)
    if verdict.failed:
        raise CheckFailed(verdict, shown)
    if not shown:
        print(verdict)


@contextlib.contextmanager
def collecting() -> Iterator[list[Verdict]]:
    """Collect the verdicts that are shown meanwhile, those of checks that pass, too."""
    verdicts: list[Verdict] = []
    token = _collected.set(verdicts)
    try:
        yield verdicts
    finally:
        _collected.reset(token)


def _shows_displays() -> bool:
    """Tell whether this process shows what is displayed, as a notebook's kernel does."""
    from IPython import get_ipython

    return get_ipython() is not None


def _html_row(row: tuple[str, ...]) -> str:
    """Return the row of a case; a story of several lines goes below it, over the whole width."""
    *cells, got = row
    first, _, story = got.partition("\n")
    below = f'<tr><td colspan="{len(row)}" style="{_CELL}">{escape(story)}</td></tr>' if story else ""
    line = "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in (*cells, first))
    return f"<tr>{line}</tr>{below}"


def _html_printed(printed: tuple[str, str] | None) -> str:
    if printed is None:
        return ""
    title, text = map(escape, printed)
    return f'<p style="margin:.3em 0">{title}</p><pre style="margin:.3em 0 .3em 1em">{text}</pre>'


def _html_note(note: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(note))


def _indented(text: str) -> str:
    return text.replace("\n", "\n              ")
