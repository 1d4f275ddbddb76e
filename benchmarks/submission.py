"""A solved exercise of three collectives, handed in and graded: by the referee, and by nbgrader alone.

Both are `nbgrader autograde` of one submission, from the command to the gradebook. Stock nbgrader runs tests
that are written with `torch.multiprocessing.spawn`, with all rights and in the student's own process; the
referee runs the course's, in a sandbox, and measures traffic besides.
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
from collections.abc import Callable, Iterator
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
NUMELS = {"broadcast": 100_003, "ring_all_reduce": 1_000_003, "all_to_all": 10_007}


def refereed() -> Iterator[float]:
    return _graded(exercise(), lambda course: shutil.copy(COURSE / "nbgrader_config.py", course))


def stock() -> Iterator[float]:
    def with_tests_beside(course: Path) -> None:
        shutil.copy(spawned_tests.__file__, course / "source" / TOPIC)
        (course / "nbgrader_config.py").write_text(
            'c = get_config()\nc.CourseDirectory.course_id = "fourranks"\nc.Execute.timeout = 600\n'
        )

    notebook = exercise()
    defined: list[str] = []
    for cell in notebook.cells:
        operation = cell.id.removesuffix("_check")
        if operation != cell.id:
            cell.source = STOCK_TEST.format(names=defined, operation=operation, numel=NUMELS[operation])
        elif operation in (*NEEDS, *QUESTIONS):
            statements = ast.parse(cell.source).body
            defined += [each.name for each in statements if isinstance(each, ast.FunctionDef)]
    return _graded(notebook, with_tests_beside)


def exercise() -> NotebookNode:
    """The instructor's notebook with three of the questions, answered, and the functions that they use."""
    notebook = read(COURSE / "source" / TOPIC / "exercise.py", "exercise.py")
    kept = {*NEEDS, *QUESTIONS, *(f"{question}_check" for question in QUESTIONS)}
    setup = [cell for cell in notebook.cells if cell.cell_type == "code" and "import torch" in cell.source]
    notebook.cells = setup[:1] + [cell for cell in notebook.cells if cell.id in kept]
    return notebook


def _graded(notebook: NotebookNode, prepare: Callable[[Path], object]) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        for place in (course / "source" / TOPIC, course / "submitted" / "ada" / TOPIC):
            place.mkdir(parents=True)
            nbformat.write(notebook, place / "exercise.ipynb")
        prepare(course)
        _nbgrader("generate_assignment", course)
        while True:
            shutil.rmtree(course / records.FOLDER, ignore_errors=True)  # else nothing is run again
            began = monotonic()
            _nbgrader("autograde", course, "--force")
            seconds = monotonic() - began
            _require_full_marks(course)
            yield seconds


def _nbgrader(command: str, course: Path, *options: str) -> None:
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        [Path(scripts, "nbgrader"), command, TOPIC, *options],
        cwd=course,
        env=os.environ | {"PATH": os.pathsep.join([scripts, os.environ["PATH"]])},  # it calls alembic by name
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"nbgrader {command} failed:\n{done.stdout[-2000:]}")


def _require_full_marks(course: Path) -> None:
    """A grading that stops early would be fast."""
    with contextlib.closing(sqlite3.connect(course / "gradebook.db")) as gradebook:
        scores = gradebook.execute("SELECT auto_score FROM grade").fetchall()
    if len(scores) != len(QUESTIONS) or not all(score for (score,) in scores):
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
)
