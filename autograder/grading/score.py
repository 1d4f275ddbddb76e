"""The reader's own score: runs an exercise and prints, for each question, its points and what is wrong.

`autograder check exercises/02_collectives` calls it. The notebook is run by the same referee in the same
sandbox as in class, so what is right here is right there. It gives no grade: the test cells are the reader's.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.validator import get_validator
from nbgrader.utils import compute_checksum, determine_grade

from autograder.grading import outputs, referee, submission
from autograder.grading.outputs import Failure
from autograder.grading.submission import ASK, MAX_ERROR, SubmissionError, field_of, restored
from autograder.kit.text import line
from autograder.sandbox import tiers
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.student_process import StudentProcess
from autograder.sandbox.tiers import Tier
from fourranks.protocol.remote_error import plain

_MESSAGE_WIDTH = 100
_PRINT = partial(print, flush=True)  # into a file or a pipe, too, as soon as it is known


class ScoreError(Exception):
    """There is nothing to run; the text says why and what to do."""


@dataclass(frozen=True)
class ScoreLine:
    """One graded cell: its name, its points, and what came of it."""

    name: str
    max_points: float
    points: float | None  # None is graded by hand
    message: str

    def __str__(self) -> str:
        points = "by hand" if self.points is None else f"{self.points:g}"
        return f"  {self.name:<28} {points:>7} of {self.max_points:>3g}  {self.message}"


def check(path: Path, show: Callable[[str], None] = _PRINT) -> bool:
    """Run an exercise's notebook, or all in a folder, and show a line for each question as it is known.

    Args:
        path: a notebook, or a folder with notebooks.
        show: takes each line.

    Returns:
        Whether all points that can be had without a teacher were had.

    Raises:
        ScoreError: when there is no such notebook, or no question in it, or this machine cannot run it.
    """
    notebooks = [(notebook, _read(notebook)) for notebook in _notebooks(path)]
    tier = _tier(show)
    try:
        complete = [_check_notebook(path, notebook, tier, show) for path, notebook in notebooks]
    except SandboxMissing as error:
        raise ScoreError(str(error)) from None
    return all(complete)


def _notebooks(path: Path) -> list[Path]:
    found = sorted(path.glob("*.ipynb")) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise ScoreError(
            f"There is no notebook at {path}. Name an exercise, such as exercises/02_collectives."
        )
    return found


def _read(path: Path) -> NotebookNode:
    try:
        submission.read(path)  # which says what is wrong, and what to do
        content = json.loads(path.read_bytes())
        notebook = nbformat.reads(json.dumps(content), as_version=4)
    except SubmissionError as error:
        raise ScoreError(str(error)) from None
    except Exception as error:  # nbformat raises all errors of its parsers
        wrong = line(next(_flaws(content), str(error)), MAX_ERROR)
        raise ScoreError(f"{path} is not a notebook: {wrong}. {ASK}") from None
    for cell in notebook.cells:
        if not field_of(cell, "grade_id"):  # the rest of a question that was copied
            cell.metadata.pop("nbgrader", None)
    if not any(field_of(cell, "grade") for cell in notebook.cells):
        raise ScoreError(f"{path} has no graded question.")
    return notebook


def _flaws(content: object) -> Iterator[str]:
    """Say what in a notebook is not as the format has it, and where: in cells[3].metadata, for instance."""
    for flaw in get_validator(4, 5).iter_errors(content):
        yield flaw.message.removeprefix("data.")


def _tier(show: Callable[[str], None]) -> Tier:
    """Choose a sandbox, as in class, or else let code run as it does in the reader's notebook."""
    try:
        return tiers.choose()
    except SandboxMissing as error:
        show(f"This runs without the sandbox that is used in class. {error}")
        return Tier.NONE


def _check_notebook(path: Path, notebook: NotebookNode, tier: Tier, show: Callable[[str], None]) -> bool:
    show(f"{path}")
    graded, repairs = restored(notebook, notebook)
    for said in [*repairs, *_changed(graded)]:
        show(f"  {said}")
    questions = []

    def done(cell: NotebookNode) -> None:
        if field_of(cell, "grade"):
            questions.append(_question(cell))
            show(str(questions[-1]))

    with StudentProcess(launch=tier.launch) as student:
        referee.run(graded, student, secrets.token_hex(16), done)
    return _sum(questions, show)


def _changed(notebook: NotebookNode) -> Iterator[str]:
    for cell in notebook.cells:
        if field_of(cell, "locked") and field_of(cell, "checksum") not in (None, compute_checksum(cell)):
            yield f"{field_of(cell, 'grade_id')}: the cell was changed; in class it is as it was handed out"


def _sum(questions: list[ScoreLine], show: Callable[[str], None]) -> bool:
    own = [question for question in questions if question.points is not None]
    points, most = sum(q.points or 0 for q in own), sum(q.max_points for q in own)
    by_hand = sum(q.max_points for q in questions) - most
    show(
        f"  {'':<28} {points:>7g} of {most:>3g}  points" + (f", {by_hand:g} more by hand" if by_hand else "")
    )
    return points == most


def _question(cell: NotebookNode) -> ScoreLine:
    name, most = field_of(cell, "grade_id"), field_of(cell, "points")
    points, _ = determine_grade(cell)
    if field_of(cell, "solution"):
        return ScoreLine(name, most, None, "no answer yet" if points == 0 else "")
    failure = outputs.failure(cell.outputs)
    return ScoreLine(name, most, points, _line(failure) if failure else "passed" if points == most else "")


def _line(failure: Failure) -> str:
    text = plain(failure.message).strip().split("\n")[0]
    if failure.name not in (outputs.CHECK_FAILED, AssertionError.__name__):
        text = f"{failure.name}: {text}" if text else failure.name
    return text if len(text) <= _MESSAGE_WIDTH else text[: _MESSAGE_WIDTH - 1] + "…"
