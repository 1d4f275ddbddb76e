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
from time import monotonic, sleep

import nbformat
import psutil
from nbformat import NotebookNode

from autograder.grading import records
from autograder.notebooks.source import read

from . import spawned_tests
from .model import OURS, Benchmark, Contender, at_most, faster

COURSE = Path(__file__).parent.parent
TOPIC = "02_collectives"
AUTOGRADE = ("nbgrader", "autograde", TOPIC, "--force")
GRADE = ("autograder", "grade", TOPIC)
SAID = "said.txt"
QUESTIONS = ("broadcast", "ring_all_reduce", "all_to_all")
NEEDS = ("exchange", "ring_reduce_scatter", "ring_all_gather")  # used by the answers
STOCK_TEST = """
import inspect, spawned_tests
names = {names}
source = "import torch\\nimport torch.distributed as dist\\n\\n"
source += "\\n\\n".join(inspect.getsource(globals()[name]) for name in names)
spawned_tests.compare(source, {operation!r})
### BEGIN HIDDEN TESTS
spawned_tests.compare(source, {operation!r}, world_sizes=(7,), numels=(1, {numel}))
### END HIDDEN TESTS
"""
CLASS = 100
SMALLER_CLASS = 30  # in which memory is measured
LOOK = 0.5  # seconds between looks at it
PATIENCE = 3600.0  # seconds; the class takes a quarter of it on two idle cores
NUMELS = {"broadcast": 100_003, "ring_all_reduce": 250_007, "all_to_all": 10_007}


def refereed() -> Iterator[float]:
    return _graded(exercise(), _with_the_referee, AUTOGRADE)


def refereed_class() -> Iterator[float]:
    for seconds in _graded(exercise(), _with_the_referee, GRADE, CLASS):
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


def growth_of_memory() -> Iterator[float]:
    """The most that grading takes in the last third of a class, divided by the most in the first third."""
    with _handed_in(exercise(), _with_the_referee, SMALLER_CLASS) as course:
        while True:
            grading = _begin(GRADE, course)
            peaks = [0.0, 0.0, 0.0]
            while grading.poll() is None:
                done = len(list((course / records.FOLDER).glob("*/*/*.json")))
                third = min(2, 3 * done // SMALLER_CLASS)
                peaks[third] = max(peaks[third], _memory(grading.pid))
                sleep(LOOK)
            _end(grading, course)
            _require_full_marks(course, SMALLER_CLASS)
            yield peaks[2] / peaks[0]


def _memory(pid: int) -> float:
    """Bytes of a process and all that it has started; pages that several share count once."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += each.memory_full_info().pss
    return float(total)


def _graded(
    notebook: NotebookNode, prepare: Callable[[Path], object], command: Sequence[str], students: int = 1
) -> Iterator[float]:
    """Seconds for grading as many submissions of this notebook."""
    with _handed_in(notebook, prepare, students) as course:
        while True:
            began = monotonic()
            _end(_begin(command, course), course)
            seconds = monotonic() - began
            _require_full_marks(course, students)
            yield seconds


@contextlib.contextmanager
def _handed_in(notebook: NotebookNode, prepare: Callable[[Path], object], students: int) -> Iterator[Path]:
    """A course's folder in which so many have handed in this notebook."""
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder)
        submitted = [course / "submitted" / f"student{number}" / TOPIC for number in range(students)]
        for place in (course / "source" / TOPIC, *submitted):
            place.mkdir(parents=True)
            nbformat.write(notebook, place / "exercise.ipynb")
        prepare(course)
        _end(_begin(("nbgrader", "generate_assignment", TOPIC), course), course)
        yield course


def _begin(command: Sequence[str], course: Path) -> subprocess.Popen:
    """Start a command; its output goes to a file. All earlier grades are forgotten."""
    shutil.rmtree(course / records.FOLDER, ignore_errors=True)
    scripts = sysconfig.get_path("scripts")
    with (course / SAID).open("w") as said:
        return subprocess.Popen(
            [Path(scripts, command[0]), *command[1:]],
            cwd=course,
            env=os.environ
            | {"PATH": os.pathsep.join([scripts, os.environ["PATH"]])},  # nbgrader calls alembic
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def _end(begun: subprocess.Popen, course: Path) -> None:
    """Wait until it has ended, and well."""
    if begun.wait() != 0:
        raise RuntimeError(f"a command failed: {(course / SAID).read_text()[-2000:]}")


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
            Contender("nbgrader, tests with torch.multiprocessing.spawn: values", stock, faster(25)),
        ),
        repeats=3,
        patience=PATIENCE,
    ),
    Benchmark(
        f"the same, a submission of a class of {CLASS} by `autograder grade`",
        (
            Contender(OURS, refereed_class),
            Contender("nbgrader, a class of one: it restarts for each submission", stock, faster(30)),
        ),
        repeats=1,
        patience=PATIENCE,
    ),
    Benchmark(
        f"memory while a class of {SMALLER_CLASS} is graded (PSS of all processes): the most in the last "
        "third of the class, divided by the most in the first third",
        (Contender(OURS, growth_of_memory, at_most(1.1, "")),),
        repeats=1,
        unit="",
        patience=PATIENCE,
    ),
)
