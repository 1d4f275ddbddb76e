"""Fits the course's pages for reading without a kernel, between their files and Sphinx."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autograder.notebooks.stage import start_page
from website import cell_lexer
from website.concept_map import picture
from website.contents import START, toctrees

if TYPE_CHECKING:
    from sphinx.application import Sphinx

Cell = dict[str, Any]  # as in a notebook's JSON

ASKS = re.compile(r"# your (prediction|answer)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RELATIVE = re.compile(r"\]\((?!\w+:)")
SOLUTION = re.compile(r", \[solution\]\(solutions/[^)]*\)")
NOTE = """```{note}
These pages show each lecture as it ran on one machine, and each exercise as it is handed out. Outputs that
answer a question are folded: predict first, then unfold them. To run the cells yourself, get a copy of the
course and type `make lab` in it; the [README](README.md) says what that takes.
```"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", _fit)
    app.connect("html-page-context", _give_headings_a_level, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fit(app: Sphinx, page: str, source: list[str]) -> None:
    course = Path(app.srcdir)
    if page == START:
        source[0] = start(course)
    elif page == "README":
        source[0] = SOLUTION.sub("", source[0])
    elif page == "docs/students":
        source[0] = RELATIVE.sub("](../", source[0])  # it is the README of another folder
    elif app.env.doc2path(page).suffix == ".ipynb":
        source[0] = folded(source[0])
    else:
        source[0] = MERMAID.sub(lambda found: f"```{{raw}} html\n{picture(found[1])}\n```", source[0])


def _give_headings_a_level(app: Sphinx, page: str, template: str, context: dict[str, Any], _: object) -> None:
    """Say to screen readers which level the sidebar's headings have; Sphinx leaves that out."""
    sidebar = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = sidebar.replace('role="heading"', 'role="heading" aria-level="2"')


def start(course: Path) -> str:
    """Return the start page: without solutions, with what these pages are and the table of contents."""
    text = start_page(course, course, kinds=("lecture", "exercise"))
    before, begin, after = text.partition("**Begin here:**")
    return f"{before}{NOTE}\n\n{begin}{after}\n\n{toctrees(course)}\n"


def folded(notebook: str) -> str:
    """Fold the outputs between a question and the text that answers it, and name the lexer of cells."""
    content = json.loads(notebook)
    content["metadata"]["language_info"]["pygments_lexer"] = cell_lexer.NAME
    for cell in _answers(content["cells"]):
        cell["metadata"].setdefault("tags", []).append("hide-output")
    return json.dumps(content)


def _answers(cells: list[Cell]) -> Iterator[Cell]:
    asked = False
    for cell in cells:
        if cell["cell_type"] != "code":
            asked = False
            continue
        if asked and cell["outputs"]:
            yield cell
        asked = asked or bool(ASKS.search("".join(cell["source"])))
