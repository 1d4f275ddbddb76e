"""The reader's own score: runs an exercise and prints, for each question, its points and what is wrong.

`autograder check exercises/02_collectives` calls it. It grades nobody: the test cells are those of the
reader's own notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from fourranks.errors import plain

CELL_TIMEOUT = 180  # seconds; a check bounds its own time, this is for cells that never end
_MESSAGE_WIDTH = 100


class ScoreError(Exception):
    """There is nothing to run; the text says why and what to do."""


@dataclass(frozen=True)
class Question:
    """One graded cell: its name, its points, and what came of it."""

    name: str
    max_points: float
    points: float | None  # None is graded by hand
    message: str

    def __str__(self) -> str:
        points = "by hand" if self.points is None else f"{self.points:g}"
        return f"  {self.name:<28} {points:>7} of {self.max_points:>3g}  {self.message}"


def check(path: Path, show: Callable[[str], None] = print) -> bool:
    """Runs an exercise's notebook, or all in a folder, and shows one line for each question as it is known.

    Args:
        path: a notebook, or a folder with notebooks.
        show: takes each line.

    Returns:
        Whether all points that can be had without a teacher were had.

    Raises:
        ScoreError: when there is no such notebook, or no question in it.
    """
    complete = [_check_notebook(notebook, show) for notebook in _notebooks(path)]
    return all(complete)


def _notebooks(path: Path) -> list[Path]:
    found = sorted(path.glob("*.ipynb")) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise ScoreError(
            f"There is no notebook at {path}. Name an exercise, such as exercises/02_collectives."
        )
    return found


def _check_notebook(path: Path, show: Callable[[str], None]) -> bool:
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises whatever its parsers do
        raise ScoreError(f"{path} cannot be read as a notebook: {error}") from None
    if not any(_field(cell, "grade") for cell in notebook.cells):
        raise ScoreError(f"{path} has no graded question.")
    show(f"{path}")
    questions = []
    for question in _questions(notebook, path.parent):
        questions.append(question)
        show(str(question))
    own = [question for question in questions if question.points is not None]
    points, most = sum(q.points for q in own), sum(q.max_points for q in own)
    by_hand = sum(q.max_points for q in questions) - most
    show(
        f"  {'':<28} {points:>7g} of {most:>3g}  points" + (f", {by_hand:g} more by hand" if by_hand else "")
    )
    return points == most


def _questions(notebook: NotebookNode, folder: Path) -> Iterator[Question]:
    """Runs cell after cell, whatever each comes to, and yields every graded one."""
    client = NotebookClient(
        notebook,
        resources={"metadata": {"path": str(folder)}},
        timeout=CELL_TIMEOUT,
        interrupt_on_timeout=True,
        allow_errors=True,
        config=Config(KernelManager={"transport_encryption": "auto"}),
    )
    died = ""
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type == "code" and not died:
                try:
                    client.execute_cell(cell, index)
                except DeadKernelError:
                    died = f"the kernel died in cell {index + 1}"
            if _field(cell, "grade"):
                yield _question(cell, died)


def _question(cell: NotebookNode, died: str) -> Question:
    name, most = _field(cell, "grade_id"), _field(cell, "points")
    if _field(cell, "solution"):
        return Question(name, most, None, "")
    errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
    if died:
        return Question(name, most, 0, died)
    if errors:
        return Question(name, most, 0, _first_line(errors[0]))
    return Question(name, most, most, "passed")


def _first_line(error: NotebookNode) -> str:
    text = plain(error.evalue).strip().split("\n")[0]
    if error.ename not in ("CheckFailed", "AssertionError"):
        text = f"{error.ename}: {text}" if text else error.ename
    return text if len(text) <= _MESSAGE_WIDTH else text[: _MESSAGE_WIDTH - 1] + "…"


def _field(cell: NotebookNode, name: str) -> object:
    return cell.metadata.get("nbgrader", {}).get(name)
