"""Grades two submissions to each exercise, the solution and a wrong one, and prints their points as JSON.

`python -m benchmarks.compat.graded [TOPIC ...]` runs with the Python and the torch that are to be tried. All
inputs are drawn from one secret, so that every version is asked the same.
"""

from __future__ import annotations

import json
import random
import sys
from functools import partial

from nbformat import NotebookNode
from nbgrader.utils import determine_grade

from autograder.grading import referee
from autograder.grading.submission import is_test, name_of
from autograder.sandbox.bubblewrap import Bubblewrap
from autograder.sandbox.launch import launch
from autograder.sandbox.student_process import StudentProcess

from ..classes import COURSE, exercise, wrong_answer

SECRET = "the same on all versions"
TOPICS = sorted(path.parent.name for path in COURSE.glob("source/*/exercise.py"))


def grade(topic: str, wrong: bool) -> dict[str, tuple[float, float]]:
    """Return what each question of a submission earned, and the most that it can earn.

    Args:
        topic: whose exercise was handed in.
        wrong: whether every answer that the tests have a wrong solution for is one of these.
    """
    notebook = exercise(topic)
    if wrong:
        _spoil(topic, notebook)
    with StudentProcess(launch=partial(launch, Bubblewrap)) as student:
        referee.run(notebook, student, SECRET)
    return {name_of(cell): determine_grade(cell) for cell in notebook.cells if is_test(cell)}


def _spoil(topic: str, notebook: NotebookNode) -> None:
    tests = [cell for cell in notebook.cells if is_test(cell)]
    for cell in notebook.cells:
        if cell.metadata.nbgrader.solution:
            cell.source = wrong_answer(topic, cell.source, tests, random.Random(topic)) or cell.source


if __name__ == "__main__":
    for topic in sys.argv[1:] or TOPICS:
        print(json.dumps([topic, grade(topic, wrong=False), grade(topic, wrong=True)]), flush=True)
