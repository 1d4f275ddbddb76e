"""A class of any size, made from the course's solutions: `python -m benchmarks.classes FOLDER`.

Makes a course's folder, ready for `autograder grade`, in which everybody has handed in a solution of their
own: other names, other places of cells, and here and there a wrong answer from the tests' shelf, a cell that
was deleted, a notebook that is none. `deserved.csv` in it says who must get which points.
"""

from __future__ import annotations

import argparse
import ast
import csv
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Gradebook

from autograder.grading.dependencies import checks
from autograder.grading.submission import is_test, name_of
from autograder.notebooks.source import read

COURSE = Path(__file__).parent.parent
SHELF = COURSE / "tests" / "autograder" / "wrong_solutions"
WRONG, UNANSWERED, DELETED, BROKEN = 0.15, 0.05, 0.05, 0.02  # how often; the last one of submissions
GIVES_PARTS = {"parse_topology"}  # checks that give points for what is right of an answer
QUESTIONS = "exchange,broadcast,reduce,scatter,gather"


def make(folder: Path, students: int, topic: str, questions: Sequence[str], seed: int = 0) -> None:
    """Make the folder of a course with one assignment, which a class of so many has handed in.

    Args:
        questions: the answers that are asked for, by name; all if empty.
    """
    source = exercise(topic, questions)
    (folder / "source" / topic).mkdir(parents=True)
    nbformat.write(source, folder / "source" / topic / "exercise.ipynb")
    shutil.copy(COURSE / "nbgrader_config.py", folder)
    program = Path(sysconfig.get_path("scripts"), "nbgrader")
    subprocess.run([program, "generate_assignment", topic], cwd=folder, check=True, capture_output=True)
    released = nbformat.read(folder / "exercises" / topic / "exercise.ipynb", as_version=4)
    tests = [cell for cell in source.cells if is_test(cell)]
    with (folder / "deserved.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["student", *map(name_of, tests)])
        for number in range(students):
            submission = _Submission(source, released, topic, random.Random(f"{seed}/{number}"))
            student = f"student{number:04}"
            table.writerow([student, *map(submission.deserves, tests)])
            submission.hand_in(folder / "submitted" / student / topic / "exercise.ipynb")


def differences(folder: Path, topic: str) -> list[str]:
    """List where the gradebook has something else than the class deserves, a line each."""
    with Gradebook(f"sqlite:///{folder.resolve()}/gradebook.db", "fourranks") as gradebook:
        got = {
            (submission.student_id, grade.name): "?" if grade.needs_manual_grade else f"{grade.score:g}"
            for submission in gradebook.assignment_submissions(topic)
            for notebook in submission.notebooks
            for grade in notebook.grades
        }
    with (folder / "deserved.csv").open() as file:
        rows = {row.pop("student"): row for row in csv.DictReader(file)}
    return [
        f"{student}, {question}: deserved {points}, got {got.get((student, question))}"
        for student, row in rows.items()
        for question, points in row.items()
        if points != "?" and got.get((student, question)) != points
    ]


def exercise(topic: str, questions: Sequence[str] = ()) -> NotebookNode:
    """Return the instructor's notebook, with these questions only, or all, and without text."""
    notebook = read(COURSE / "source" / topic / "exercise.py", "exercise.py")
    kept = {"setup", *questions, *(f"{question}_check" for question in questions)}
    notebook.cells = [
        cell
        for cell in notebook.cells
        if name_of(cell) and cell.cell_type == "code" and (not questions or name_of(cell) in kept)
    ]
    return notebook


@dataclass(frozen=True)
class _Answer:
    """A student's text of a cell."""

    source: str
    right: bool


class _Submission:
    """One student's submission; the same random numbers make the same."""

    def __init__(self, source: NotebookNode, released: NotebookNode, topic: str, draw: random.Random) -> None:
        self._released = released
        self._draw = draw
        self._broken = draw.random() < BROKEN
        stubs = {name_of(cell): cell.source for cell in released.cells}
        solved = {name_of(c): c.source for c in source.cells if c.metadata.nbgrader.solution}
        tests = [cell for cell in source.cells if is_test(cell)]
        self._answers = {name: _Answer(_renamed(text, draw), True) for name, text in solved.items()}
        for name, text in solved.items():
            chance = draw.random()
            if chance < WRONG:
                if wrong := wrong_answer(topic, text, tests, draw):
                    self._answers[name] = _Answer(wrong, False)
            elif chance < WRONG + UNANSWERED:
                self._answers[name] = _Answer(stubs[name], False)
        self._sources = {name: answer.source for name, answer in self._answers.items()}

    def deserves(self, test: NotebookNode) -> str:
        """Points for a test cell; "?" when a right answer uses a wrong one, a wrong one is right in parts, or
        nothing can be graded."""
        if self._broken:
            return "?"
        used = _used(test.source, self._sources)
        asked = [name for name in used if _defined(self._sources[name]) & _words(test.source)]
        if not all(self._answers[name].right for name in asked):
            return "?" if checks(test.source) & GIVES_PARTS else "0"
        return f"{test.metadata.nbgrader.points:g}" if all(self._answers[n].right for n in used) else "?"

    def hand_in(self, path: Path) -> None:
        """Write the notebook, or what somebody sent in its place."""
        path.parent.mkdir(parents=True)
        if self._broken:
            path.write_bytes(b"PK\x05\x06" + bytes(18))
            return
        notebook = deepcopy(self._released)
        for cell in notebook.cells:
            cell.source = self._sources.get(name_of(cell), cell.source)
        notebook.cells = self._reordered(notebook.cells)
        nbformat.write(notebook, path)

    def _reordered(self, cells: Sequence[NotebookNode]) -> list[NotebookNode]:
        """Answers in another order, and a test cell deleted now and then: it comes back when it is graded."""
        first, *rest = cells
        answers = [cell for cell in rest if not is_test(cell)]
        if all(_used(text, self._sources) <= {name} for name, text in self._sources.items()):
            self._draw.shuffle(answers)
        tests = [cell for cell in rest if is_test(cell) and self._draw.random() >= DELETED]
        return [first, *answers, *tests]


# --- variants of answers ----------------------------------------------------------------------------------


def _renamed(source: str, draw: random.Random) -> str:
    """The same program with other names of local variables, and without its comments."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic
        return source
    ending = f"_{draw.randrange(1000)}"
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        local = _locals(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in local:
                node.id += ending
    return ast.unparse(tree)


def _locals(function: ast.FunctionDef) -> set[str]:
    """Names that are assigned in a function, and nothing but names of variables."""
    nodes = list(ast.walk(function))
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)) for node in nodes[1:]):
        return set()  # inner scopes; one would have to look closer
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    other = {node.arg for node in nodes if isinstance(node, ast.arg)}
    other |= {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return assigned - other


def wrong_answer(topic: str, source: str, tests: Iterable[NotebookNode], draw: random.Random) -> str | None:
    """Return a wrong solution of the shelf under the name of a right one; None if there is none for it."""
    for test in tests:
        named = {_alike(name): name for name in _defined(source) & _words(test.source)}
        for check in checks(test.source):  # of the same name, which classes have in capitals
            path, name = SHELF / topic / f"{check}.py", named.get(_alike(check))
            if name and path.exists():
                files = [SHELF / topic / "common.py", path]
                text = "\n\n".join(file.read_text() for file in files if file.exists())
                choices = sorted(_dictionary(path.read_text(), "FAILS_AS"))
                return f"{text}\n\n{name} = {draw.choice(choices)}"
    return None


def _alike(name: str) -> str:
    return name.replace("_", "").lower()


def _dictionary(source: str, name: str) -> Mapping[str, object]:
    """The literal that a module assigns to this name."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


# --- who uses what ----------------------------------------------------------------------------------------


def _used(source: str, answers: Mapping[str, str]) -> set[str]:
    """The answers that some code uses, and those that these use."""
    used: set[str] = set()
    waiting = [source]
    while waiting:
        words = _words(waiting.pop())
        new = {name for name, text in answers.items() if _defined(text) & words} - used
        used |= new
        waiting += [answers[name] for name in new]
    return used


def _defined(source: str) -> set[str]:
    """The names that a cell defines."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _words(source: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classes", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of the course; does not exist yet")
    parser.add_argument("--compare", action="store_true", help="say where a graded class got something else")
    parser.add_argument("--grade", action="store_true", help="grade it, too, and compare; needs no folder")
    parser.add_argument("--students", type=int, default=300)
    parser.add_argument("--topic", default="02_collectives")
    parser.add_argument("--questions", default=QUESTIONS, help='names of answers; "" for all')
    parser.add_argument("--backend", default="gloo", help="nccl: grade it on NCCL, too")
    options = parser.parse_args()
    if not options.folder and not options.grade:
        parser.error("name a folder")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "course"
        if not options.compare:
            questions = [name for name in options.questions.split(",") if name]
            make(folder, options.students, options.topic, questions)
        if options.grade:
            program = Path(sysconfig.get_path("scripts"), "autograder")
            command = [program, "grade", options.topic, "--backend", options.backend]
            subprocess.run(command, cwd=folder, check=False)
        elif not options.compare:
            print(f"cd {folder} && autograder grade {options.topic}", file=sys.stderr)
            return
        found = differences(folder, options.topic)
    print("\n".join(found) or "Everybody got what they deserve.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
