"""Grades one submission in a container of Gradescope's, and writes what it came to as Gradescope reads it.

`run_autograder` of the zip that `autograder bundle --gradescope` makes calls `main`. The same referee grades
as in class. Students see at once the results of the tests that they have; the points, which hidden tests
decide about, appear when the instructor publishes grades.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbgrader.utils import determine_grade

from autograder.grading import intake, machine, submission
from autograder.grading.collect import NOTEBOOK, find_in, listed, what_counts, why_unread
from autograder.grading.grade_submission import grade_notebook
from autograder.grading.intake import HandedIn
from autograder.grading.records import Terms
from autograder.grading.submission import HIDDEN, SubmissionError, is_test, name_of

ROOT = "GRADESCOPE_ROOT"  # of the environment: the folder that is /autograder there, to try this elsewhere
LATER = "after_published"
OWN_TESTS = " (the tests that you have)"


def main(course: Path, assignment: str) -> str:
    """Grade what is in Gradescope's folder for a submission.

    Returns:
        A message about the change that the instructor has to make before grading is possible; "" if it was.
    """
    root = Path(os.environ.get(ROOT, "/autograder"))
    if reason := machine.too_little_memory():
        return (
            f"{reason} Choose 2 CPUs and 3 GB in the assignment's settings, under Autograder, Container "
            "Specifications."
        )
    if reason := machine.lack(Terms()):
        return reason
    with tempfile.TemporaryDirectory() as folder:
        results = _graded(root / "submission", course, assignment, Path(folder))
    (root / "results").mkdir(exist_ok=True)
    (root / "results/results.json").write_text(json.dumps(results), encoding="ascii")
    return ""


def _graded(uploaded: Path, course: Path, assignment: str, folder: Path) -> dict[str, Any]:
    release = submission.release(course, assignment, Path(NOTEBOOK).stem)
    try:
        notebook, remark = _read(uploaded, course / "source" / assignment / NOTEBOOK, folder)
    except SubmissionError as error:
        reason = str(error).removeprefix(f"{folder}/")
        return {"score": 0, "output": reason, "stdout_visibility": "hidden"}
    notebook = _with_previews(submission.repaired(notebook, release))
    grade_notebook(notebook, folder / "record.json", Terms())
    return _results(notebook, remark)


def _read(uploaded: Path, release: Path, folder: Path) -> tuple[NotebookNode, str]:
    """Read the notebook among what a student uploaded; also return which one counts if there are several."""
    found = find_in(uploaded, release.read_bytes())
    if found.chosen is None:
        there = listed(sorted(found.paths)) or "nothing"
        raise SubmissionError(
            f"Upload the notebook {NOTEBOOK} of {release.parent.name}. "
            f"What was uploaded has none of its questions: {there}{why_unread(found)}."
        )
    (folder / NOTEBOOK).write_bytes(found.content)
    return intake.read(HandedIn(folder / NOTEBOOK, folder / "exercise.read")), what_counts(found)


def _with_previews(notebook: NotebookNode) -> NotebookNode:
    """Put, before each test cell with hidden tests, one with the others, which earns nothing."""
    cells = []
    for cell in notebook.cells:
        if is_test(cell) and HIDDEN.search(cell.source):
            preview = deepcopy(cell)
            preview.source = HIDDEN.sub("", cell.source)
            preview.id = preview.metadata.nbgrader.grade_id = name_of(cell) + OWN_TESTS
            preview.metadata.nbgrader.points = 0
            cells.append(preview)
        cells.append(cell)
    return NotebookNode({**notebook, "cells": cells})


def _results(notebook: NotebookNode, remark: str) -> dict[str, Any]:
    """Return what Gradescope reads of a graded notebook. Questions that a person grades are not among it."""
    cells = [cell for cell in notebook.cells if is_test(cell)]
    told = [remark, *notebook.metadata.fourranks.repairs, notebook.cells[-1].source]
    previewed = {name_of(cell).removesuffix(OWN_TESTS) for cell in cells if name_of(cell).endswith(OWN_TESTS)}
    return {
        "tests": [_test(cell, hidden=name_of(cell) in previewed) for cell in cells],
        "output": "\n".join(filter(None, told)),
        "stdout_visibility": "hidden",
    }


def _test(cell: NotebookNode, hidden: bool) -> dict[str, Any]:
    points, most = determine_grade(cell)
    failed = points < most or any(output.output_type == "error" for output in cell.outputs)
    form, text = _shown(cell.outputs)
    return {
        "name": name_of(cell),
        "score": points,
        "max_score": most,
        "status": "failed" if failed else "passed",
        "output": text,
        "output_format": form,
        "visibility": LATER if hidden else "visible",
    }


def _shown(outputs: Sequence[NotebookNode]) -> tuple[str, str]:
    """Return what a test cell shows, and in which form: a verdict's table escapes what it quotes."""
    tables = [table for output in outputs if (table := output.get("data", {}).get("text/html"))]
    if tables:
        return "html", "".join(tables)
    errors = [f"{output.ename}: {output.evalue}" for output in outputs if output.output_type == "error"]
    return "text", "\n".join(errors or [output.text for output in outputs if output.output_type == "stream"])


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), sys.argv[1]) or None)
