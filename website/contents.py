"""The contents of the site, in their order.

Notebooks are found; any other page is listed here, and the build fails when one of docs/ is not.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from pathlib import Path
from posixpath import normpath

LINK = re.compile(r"\]\(([^)#:\s]+)\)")
START = "index"
COURSE = "The course"
PLAY = "To play"
PAGES = {
    "On one page": ("docs/notation", "docs/cheat_sheet", "docs/glossary", "docs/concept_map"),
    "Run it": (
        "README",
        "docs/students",
        "docs/places",
        "docs/anywhere",
        "docs/hangs",
        "docs/gpu",
        "docs/clusters",
        "docs/compat",
        "docs/plan",
    ),
    "Teach it": ("docs/instructors", "docs/security", "docs/coverage"),
    "Change it": (
        "CONTRIBUTING",
        "docs/site",
        "benchmarks/results",
        "benchmarks/soak",
        "benchmarks/cluster",
        "benchmarks/nodes",
        "benchmarks/gpu",
        "benchmarks/data/README",
    ),
}
LABELS = {  # of pages whose title does not say enough beside others
    "README": "Set-up, commands, figures",
    "docs/students": "README of the students' copy",
    "benchmarks/results": "Figures beside the peers",
}


def contents(course: Path) -> dict[str, list[str]]:
    """Return the pages under each heading of the table of contents: paths without their ending."""
    found = {COURSE: topics(course), PLAY: _pages(sorted(course.glob("play/*.ipynb")), course)}
    listed = {heading: list(pages) for heading, pages in PAGES.items()}
    return {heading: pages for heading, pages in (found | listed).items() if pages}


def topics(course: Path) -> list[str]:
    """Return lectures, each followed by its exercise."""
    notebooks = [*course.glob("lectures/*/lecture.ipynb"), *course.glob("exercises/*/exercise.ipynb")]
    notebooks.sort(key=lambda path: (path.parent.name, path.stem == "exercise"))
    return _pages(notebooks, course)


def _pages(paths: Iterable[Path], course: Path) -> list[str]:
    return [path.relative_to(course).with_suffix("").as_posix() for path in paths]


def toctrees(course: Path) -> str:
    """Return the table of contents as MyST's directives, which a page does not show: the sidebar does."""
    return "\n\n".join(_toctree(heading, pages) for heading, pages in contents(course).items())


def _toctree(heading: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {heading}", "", *map(_entry, pages), "```"])


def _entry(page: str) -> str:
    label = LABELS.get(page)
    if page.startswith("exercises/"):
        label = f"Exercise {Path(page).parent.name.partition('_')[0]}"
    return f"{label} <{page}>" if label else page


def linked_files(course: Path, pages: Iterable[str], suffixes: Container[str]) -> list[str]:
    """Return the files with these suffixes that pages link to, by their paths from the course's top."""
    texts = [path for page in pages for path in course.glob(f"{page}.*") if path.suffix in (".md", ".ipynb")]
    targets = {
        normpath((path.parent / link).relative_to(course).as_posix())
        for path in texts
        for link in LINK.findall(path.read_text(encoding="utf-8"))
    }
    return sorted(file for file in targets if (course / file).is_file() and Path(file).suffix in suffixes)
