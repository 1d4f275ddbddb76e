"""What each submission came to when it was last run: one file each, which outlives whoever writes it.

A record is kept in refereed/ASSIGNMENT/STUDENT/NOTEBOOK.json of the course's folder. `referee` takes from it
what still holds and stores what it ran; `grade` and `report` read it. Nothing of it is a grade: those are in
the gradebook.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from autograder.grading.dependencies import checks, fingerprint
from autograder.grading.submission import is_test, name_of

FOLDER = "refereed"


@dataclass
class Cell:
    """A code cell, and what it came to.

    Attributes:
        name: its grade_id; None for a cell of the student's own.
        outputs: as in a notebook. A test cell without any is to be run again.
        secret, fingerprint: of a test cell, what its inputs were drawn from, and of the code that drew them.
    """

    name: str | None
    source: str
    is_test: bool
    outputs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    secret: str = ""
    fingerprint: str = ""


@dataclass(frozen=True)
class Terms:
    """How a submission is to be run.

    Attributes:
        sandbox: whether students' code must have been kept from everything else.
        secret: what all inputs must have been drawn from; "" is anything.
        only: the name of a test cell or of a check; "" is all. What is recorded of other test cells stands,
            even if their checks have changed since.
    """

    sandbox: bool = True
    secret: str = ""
    only: str = ""

    def about(self, cell: Cell) -> bool:
        """Whether a test cell is one of those that may have to be run again."""
        return self.only in ("", cell.name) or self.only in checks(cell.source)


@dataclass
class Record:
    """What all code cells of a submission came to, in the order in which they are run.

    Attributes:
        sandboxed: whether the student's code was kept from forging this.
        repairs: what had to be mended before it could be run.
    """

    sandboxed: bool
    repairs: list[str]
    cells: list[Cell]

    @property
    def tests(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_test]

    @property
    def seconds(self) -> float:
        """How long the cells took, each when it was last run."""
        return sum(cell.seconds for cell in self.cells)

    def holding(self, cells: Sequence[Cell], terms: Terms) -> dict[str, Cell] | None:
        """The test cells that need not be run again, by name; None if nothing of this record holds."""
        if (terms.sandbox and not self.sandboxed) or _answers(self.cells) != _answers(cells):
            return None
        return {
            old.name: old
            for old, cell in zip(self.cells, cells, strict=True)
            if cell.is_test and _holds(old, cell, terms)
        }


def path_of(course: Path, assignment: str, student: str, notebook: str) -> Path:
    """Where the record of a submitted notebook is kept."""
    return course / FOLDER / assignment / student / f"{notebook}.json"


def load(path: Path) -> Record | None:
    """The record, or None when there is none that can be read."""
    try:
        fields = json.loads(path.read_bytes())
        return Record(**fields | {"cells": [Cell(**cell) for cell in fields["cells"]]})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def save(record: Record, path: Path) -> None:
    """Replace what is there in one step: whoever reads it finds the old one or the new one, and all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="ascii") as file:
        json.dump(vars(record) | {"cells": [vars(cell) for cell in record.cells]}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def forget(path: Path, terms: Terms) -> None:
    """Have the test cells that the terms are about run again; what is recorded of others stands."""
    record = load(path)
    if record is not None:
        for cell in filter(terms.about, record.tests):
            cell.outputs = []
        save(record, path)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def cells_of(notebook: NotebookNode) -> list[Cell]:
    """A notebook's code cells, before they are run."""
    return [Cell(name_of(cell), cell.source, is_test(cell)) for cell in code_cells(notebook)]


def digest(notebook: NotebookNode) -> str:
    """Of all that a grade and a feedback page are made from: text, points, outputs.

    An autograded notebook carries it, so that one can tell what is in the gradebook.
    """
    content = [
        [cell.cell_type, cell.source, name_of(cell), _points(cell), cell.get("outputs")]
        for cell in notebook.cells
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _answers(cells: Sequence[Cell]) -> list[tuple[bool, str | None]]:
    """All that a student's code does: its cells in order, and where between them each test cell is run."""
    return [(cell.is_test, cell.name if cell.is_test else cell.source) for cell in cells]


def _holds(old: Cell, cell: Cell, terms: Terms) -> bool:
    if not old.outputs or old.source != cell.source:
        return False
    if not terms.about(cell):
        return True
    return old.fingerprint == fingerprint(cell.source) and terms.secret in ("", old.secret)


def _points(cell: NotebookNode) -> float | None:
    points = cell.metadata.get("nbgrader", {}).get("points")
    return None if points is None else float(points)
