"""Results of each submission's last run: one file each, which outlives its writer.

A record is kept in refereed/ASSIGNMENT/STUDENT/NOTEBOOK.json of the course's folder. `grade_submission` takes
from it what still holds and stores what was run; `report` reads it. Nothing of it is a grade: those are in
the gradebook. (Ranks' records of their calls are `inside.call_json`.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from traitlets.config import Config

from autograder.grading.dependencies import checks, fingerprint
from autograder.grading.submission import field_of, is_test, name_of
from autograder.kit import whole_file
from autograder.sandbox.tiers import Tier

FOLDER = "refereed"


@dataclass
class CellRecord:
    """A code cell, and what it came to.

    Attributes:
        name: its grade_id; "" for a cell of the student's own.
        outputs: as in a notebook. A test cell without any is to be run again.
        secret, fingerprint: of a test cell, the source of its inputs, and of the code that drew them.
    """

    name: str
    source: str
    is_test: bool
    outputs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    secret: str = ""
    fingerprint: str = ""

    @property
    def identity(self) -> tuple[str, str, bool]:
        """Its name, source and kind, which it has before it is run."""
        return self.name, self.source, self.is_test


@dataclass(frozen=True)
class Terms:
    """How a submission is to be run.

    Attributes:
        tier: the weakest sandbox in which students' code may have run; None is any.
        nccl: whether every check must have been run on NCCL, too.
        secret: that all inputs must have been drawn from; "" is any.
        only: the name of a test cell or of a check; "" is all. Records of other test cells stand,
            even if their checks have changed since.
    """

    tier: Tier | None = None
    nccl: bool = False
    secret: str = ""
    only: str = ""

    @classmethod
    def configured(cls, config: Config) -> Terms:
        """Return what nbgrader_config.py and the command say of the plug-in's `Referee`."""
        chosen = config.Referee
        given = {each.name: chosen[each.name] for each in fields(cls) if each.name in chosen}
        return cls(**given | {"tier": Tier(given["tier"]) if given.get("tier") else None})

    def about(self, cell: CellRecord) -> bool:
        """Tell whether a test cell is one of those that may have to be run again."""
        return self.only in ("", cell.name) or self.only in checks(cell.source)


@dataclass
class NotebookRecord:
    """The outcomes of all code cells of a submission, in the order in which they are run.

    Attributes:
        tier: of the sandbox that kept the student's code from forging this.
        repairs: made before it could be run.
        nccl: whether all checks were run on NCCL, too, as far as the GPUs were enough.
    """

    tier: Tier
    repairs: list[str]
    cells: list[CellRecord]
    nccl: bool = False

    @property
    def tests(self) -> list[CellRecord]:
        return [cell for cell in self.cells if cell.is_test]

    @property
    def seconds(self) -> float:
        """Seconds that the cells took, each when it was last run."""
        return sum(cell.seconds for cell in self.cells)

    def holding(self, cells: Sequence[CellRecord], terms: Terms) -> dict[str, CellRecord] | None:
        """Return the test cells that need not run again, by name; None if nothing of the record holds."""
        strict = self.tier.satisfies(terms.tier) and self.nccl >= terms.nccl
        if not strict or _answers(self.cells) != _answers(cells):
            return None
        return {
            old.name: old
            for old, cell in zip(self.cells, cells, strict=True)
            if cell.is_test and _holds(old, cell, terms)
        }


def path_of(course: Path, assignment: str, student: str, notebook: str) -> Path:
    """Return the path of a submitted notebook's record."""
    return course / FOLDER / assignment / student / f"{notebook}.json"


def load(path: Path) -> NotebookRecord | None:
    """Read a record; None when there is none that can be read."""
    try:
        return from_plain(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None


def plain(record: NotebookRecord) -> dict[str, Any]:
    """Return a record as JSON has it."""
    return vars(record) | {"tier": record.tier.value, "cells": [vars(cell) for cell in record.cells]}


def from_plain(saved: Any) -> NotebookRecord:
    """Return the record that `plain` made this from.

    Raises:
        ValueError: it was made from none.
    """
    try:
        cells = [CellRecord(**cell) for cell in saved["cells"]]
        return NotebookRecord(**saved | {"tier": Tier(saved["tier"]), "cells": cells})
    except (TypeError, KeyError) as error:
        raise ValueError(f"no record: {error}") from None


def save(record: NotebookRecord, path: Path) -> None:
    """Put a record in the place of the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, json.dumps(plain(record)).encode("ascii"))


def forget(path: Path, terms: Terms) -> None:
    """Have the test cells that the terms are about run again; records of others stand."""
    record = load(path)
    if record is not None:
        for cell in filter(terms.about, record.tests):
            cell.outputs = []
        save(record, path)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def cells_of(notebook: NotebookNode) -> list[CellRecord]:
    """Return a notebook's code cells, before they are run."""
    return [CellRecord(name_of(cell), cell.source, is_test(cell)) for cell in code_cells(notebook)]


def digest(notebook: NotebookNode) -> str:
    """Return a digest of all that a grade and a feedback page are made from: text, points, outputs.

    An autograded notebook carries it, so that one can tell what is in the gradebook.
    """
    content = [
        [cell.cell_type, cell.source, name_of(cell), _points(cell), cell.get("outputs")]
        for cell in notebook.cells
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _answers(cells: Sequence[CellRecord]) -> list[tuple[bool, str]]:
    """Return all that decides what a student's code does: its cells, and where tests run between them."""
    return [(cell.is_test, cell.name if cell.is_test else cell.source) for cell in cells]


def _holds(old: CellRecord, cell: CellRecord, terms: Terms) -> bool:
    if not old.outputs or old.source != cell.source:
        return False
    if not terms.about(cell):
        return True
    return old.fingerprint == fingerprint(cell.source) and terms.secret in ("", old.secret)


def _points(cell: NotebookNode) -> float | None:
    points = field_of(cell, "points")
    return None if points is None else float(points)
