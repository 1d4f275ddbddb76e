"""A solved exercise of three collectives, handed in and graded: by the referee, and by nbgrader alone.

Measured is the time from the command to the gradebook, of one submission and of a class. Stock nbgrader runs
tests that are written with `torch.multiprocessing.spawn`, with all rights and in the student's own process;
the referee runs the course's, in a sandbox, and measures traffic besides.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

import nbformat
from nbformat import NotebookNode

from autograder.grading import records
from autograder.notebooks.source import read

from . import spawned_tests
from .model import OURS, Benchmark, Contender, faster

COURSE = Path(__file__).parent.parent
TOPIC = "02_collectives"
AUTOGRADE = ("nbgrader", "autograde", TOPIC, "--force")
QUESTIONS = ("broadcast", "ring_all_reduce", "all_to_all")
NEEDS = ("exchange", "ring_reduce_scatter", "ring_all_gather")  # what the answers use
STOCK_TEST = """
import inspect, spawned_tests
names = {names}
source = "import torch\\nimport torch.distributed as dist\\n\\n"
source += "\\n\\n".join(inspect.getsource(globals()[name]) for name in names)
spawned_tests.compare(source, {operation!r})
### BEGIN HIDDEN TESTS
spawned_tests.compare(source, {operation!r}, world_sizes=(2, 3, 5, 8), numels=(0, 1, 7, {numel}))
### END HIDDEN TESTS
"""
CLASS = 16
NUMELS = {"broadcast": 100_003, "ring_all_reduce": 1_000_003, "all_to_all": 10_007}


def refereed() -> Iterator[float]:
    return _graded(exercise(), _with_the_referee, AUTOGRADE)


def refereed_class() -> Iterator[float]:
    for seconds in _graded(exercise(), _with_the_referee, ("autograder", "grade", TOPIC), CLASS):
        yield seconds / CLASS


def _with_the_referee(course: Path) -> None:
    shutil.copy(COURSE / "nbgrader_config.py", course)


def stock() -> Iterator[float]:
    notebook = exercise()
    defined: list[str] = []
    for cell in notebook.cells:
        operation = cell.id.removesuffix("_check")
        if operation != cell.id:
            cell.source = STOCK_TEST.format(names=defined, operation=operation, numel=NUMELS[operation])
        elif operation in (*NEEDS, *QUESTIONS):
            statements = ast.parse(cell.source).body
            defined += [each.name for each in statements if isinstance(each, ast.FunctionDef)]
    return _graded(notebook, _with_tests_beside, AUTOGRADE)


def _with_tests_beside(course: Path) -> None:
    shutil.copy(spawned_tests.__file__, course / "source" / TOPIC)
    (course / "nbgrader_config.py").write_text(
        'c = get_config()\nc.CourseDirectory.course_id = "fourranks"\nc.Execute.timeout = 600\n'
    )


def exercise() -> NotebookNode:
    """The instructor's notebook with three of the questions, answered, and the functions that they use."""
    notebook = read(COURSE / "source" / TOPIC / "exercise.py", "exercise.py")
    kept = {*NEEDS, *QUESTIONS, *(f"{question}_check" for question in QUESTIONS)}
    setup = [cell for cell in notebook.cells if cell.cell_type == "code" and "import torch" in cell.source]
    notebook.cells = setup[:1] + [cell for cell in notebook.cells if cell.id in kept]
    return notebook


def _graded(
    notebook: NotebookNode, prepare: Callable[[Path], object], command: Sequence[str], students: int = 1
) -> Iterator[float]:
    """Seconds for grading as many submissions of this notebook."""
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        handed_in = [course / "submitted" / f"student{number}" / TOPIC for number in range(students)]
        for place in (course / "source" / TOPIC, *handed_in):
            place.mkdir(parents=True)
            nbformat.write(notebook, place / "exercise.ipynb")
        prepare(course)
        _run(("nbgrader", "generate_assignment", TOPIC), course)
        while True:
            shutil.rmtree(course / records.FOLDER, ignore_errors=True)  # else nothing is run again
            began = monotonic()
            _run(command, course)
            seconds = monotonic() - began
            _require_full_marks(course, students)
            yield seconds


def _run(command: Sequence[str], course: Path) -> None:
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        [Path(scripts, command[0]), *command[1:]],
        cwd=course,
        env=os.environ | {"PATH": os.pathsep.join([scripts, os.environ["PATH"]])},  # nbgrader calls alembic
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def _require_full_marks(course: Path, students: int) -> None:
    """A grading that stops early would be fast."""
    with contextlib.closing(sqlite3.connect(course / "gradebook.db")) as gradebook:
        scores = gradebook.execute("SELECT auto_score FROM grade").fetchall()
    if len(scores) != students * len(QUESTIONS) or not all(score for (score,) in scores):
        raise RuntimeError(f"the solution got {scores}")


BENCHMARKS = (
    Benchmark(
        "one submission to an exercise of three collectives, from `nbgrader autograde` to the gradebook",
        (
            Contender(f"{OURS}: the referee, values and traffic, in a sandbox", refereed),
            Contender("nbgrader, tests with torch.multiprocessing.spawn: values", stock, faster(10)),
        ),
        repeats=3,
    ),
    Benchmark(
        f"the same, a submission of a class of {CLASS} by `autograder grade`",
        (
            Contender(OURS, refereed_class),
            Contender("nbgrader, a class of one: it starts anew with each submission", stock, faster(10)),
        ),
        repeats=1,
    ),
)
