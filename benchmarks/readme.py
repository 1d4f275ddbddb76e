"""Brings the figures that the README quotes up to date: it has some lines of the table that was measured."""

from __future__ import annotations

from collections.abc import Iterator

SECTION = "## Figures\n"


def refreshed(readme: str, measured: str) -> str:
    """The README with all lines of its figures as they were measured now; one that was not stays as it is."""
    before, section, figures = readme.partition(SECTION)
    lines = dict(_by_subject(measured))
    return before + section + "\n".join(lines.get(key, line) for key, line in _by_subject(figures))


def _by_subject(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each line, and its subject: the measurement and its contender, or the word before the colon."""
    title = ""
    for line in text.split("\n"):
        if line.startswith("|"):
            _, measured, contender, *_ = line.split("|")
            title = measured.strip() or title
            yield (title, contender.strip()), line
        elif line.startswith("- "):
            yield (line.partition(":")[0],), line
        else:
            yield (line,), line
