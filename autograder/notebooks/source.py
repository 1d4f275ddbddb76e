"""Reads one jupytext percent file under source/ as a notebook that is the same on every reading.

`stage` calls `read`. Cells get stable ids, and mistakes that nbgrader would pass over or report without a
place (a misspelt marker, a region in the wrong kind of cell) become a `SourceError` with file, line and cell.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
from nbformat import NotebookNode, from_dict
from nbgrader import utils
from nbgrader.nbgraderformat import MetadataValidator, ValidationError
from nbgrader.nbgraderformat.common import SchemaMismatchError

from autograder.notebooks.metadata import METADATA

CELL_START = re.compile(r"^# ?%%(\s|$)")
LONGEST_CELL_ID = 64  # of the notebook format; a grade_id becomes a cell's id
LIKE_A_MARKER = re.compile(r"\s*##+\s*(begin|end)\b", re.IGNORECASE)

# nbgrader's regions, the test by which it finds the cells to cut each from, and what such a cell is called.
REGIONS = {
    "SOLUTION": (utils.is_solution, 'a solution cell ("solution": true)'),
    "HIDDEN TESTS": (utils.is_grade, 'a test cell ("grade": true)'),
    "MARK SCHEME": (utils.is_task, 'a task cell ("task": true)'),
}


class SourceError(Exception):
    """A mistake in a file under source/; its text says where it is and what to do."""


def read(path: Path, name: str) -> NotebookNode:
    """Read the percent text at `path`; `name` is what the notebook and messages call it.

    Raises:
        SourceError: nbgrader would not treat the text as its author meant.
    """
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    for index, (cell, line) in enumerate(zip(notebook.cells, _first_lines(text, notebook), strict=True)):
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        where = f"{name}, line {line}, cell {grade_id or index + 1}"
        _check_fields(cell, where)
        _check_markers(cell, where)
        cell.id = grade_id or f"{path.stem}-{index + 1:03d}"
        cell.metadata.pop("lines_to_next_cell", None)
    _check_unique(notebook, name)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    metadata = {"fourranks": {"source": name, "sha256": sha256}, **METADATA}
    return from_dict({"cells": notebook.cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def _first_lines(text: str, notebook: NotebookNode) -> list[int]:
    """Return the line of `text` on which each cell starts."""
    starts = [number for number, line in enumerate(text.splitlines(), 1) if CELL_START.match(line)]
    unmarked = len(notebook.cells) - len(starts)
    return [1] * unmarked + starts[: len(notebook.cells)]


def _check_fields(cell: NotebookNode, where: str) -> None:
    try:
        MetadataValidator().validate_cell(cell)
    except (ValidationError, SchemaMismatchError) as error:
        message = getattr(error, "message", str(error))
        raise SourceError(f"{where}: nbgrader cannot read the fields of this cell: {message}.") from error
    if len(cell.metadata.get("nbgrader", {}).get("grade_id", "")) > LONGEST_CELL_ID:
        raise SourceError(f"{where}: a grade_id has at most {LONGEST_CELL_ID} characters.")


def _check_unique(notebook: NotebookNode, name: str) -> None:
    seen = set()
    for cell in notebook.cells:
        if cell.id in seen:
            raise SourceError(f"{name}: two cells have the id {cell.id}. Give one of them another grade_id.")
        seen.add(cell.id)


def _check_markers(cell: NotebookNode, where: str) -> None:
    """Require that regions open and close in turn, in the cells from which nbgrader cuts them."""
    inside = None
    for edge, region in _markers(cell, where):
        belongs, kind = REGIONS[region]
        if not belongs(cell):
            raise SourceError(
                f"{where}: {edge} {region} stands outside {kind}. Mark the cell as one, or move it."
            )
        if edge == "BEGIN" and inside:
            raise SourceError(f"{where}: BEGIN {region} comes before END {inside}. Regions cannot be nested.")
        if edge == "END" and inside != region:
            raise SourceError(
                f"{where}: END {region} has no BEGIN {region} before it. Add it, or remove this one."
            )
        inside = region if edge == "BEGIN" else None
    if inside:
        raise SourceError(
            f"{where}: BEGIN {inside} has no END {inside} after it. Add the line ### END {inside}."
        )


def _markers(cell: NotebookNode, where: str) -> Iterator[tuple[str, str]]:
    """Yield each marker as (BEGIN or END, region), as nbgrader finds it: anywhere in a line, in capitals."""
    for line in cell.source.splitlines():
        found = [
            (edge, region) for edge in ("BEGIN", "END") for region in REGIONS if f"{edge} {region}" in line
        ]
        if not found and cell.cell_type == "code" and LIKE_A_MARKER.match(line):
            known = ", ".join(REGIONS)
            raise SourceError(
                f"{where}: {line.strip()!r} is no marker that nbgrader knows. Use BEGIN or END {known}."
            )
        yield from found
