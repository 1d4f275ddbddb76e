"""Grades one submission: its cells run in a sandbox, the instructor's test cells in this process.

A test cell's names for what students wrote are handles: a check that uses one makes the sandbox use what the
student has called so. Nothing else of the submission comes here, and of the checks nothing but inputs goes
there.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import io
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from nbformat import NotebookNode

from autograder import check
from autograder.grading import dependencies, outputs
from autograder.grading.submission import is_test, name_of
from autograder.kit import verdict
from autograder.kit.verdict import CheckFailed, Verdict
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.student_process import StudentProcess

PATIENCE = 1200.0  # seconds for a whole submission; the slowest solution takes a tenth of it on two cores


class OutOfTime(Exception):
    """A test cell was not reached in time."""

    def __str__(self) -> str:
        return f"The submission took more than {PATIENCE:g} s; this question was not reached."


def run(
    notebook: NotebookNode,
    student: StudentProcess,
    secret: str,
    done: Callable[[NotebookNode], None] = lambda cell: None,
    known: Mapping[str, list[NotebookNode]] = MappingProxyType({}),
) -> None:
    """Run a notebook's cells in their order; their outcomes are stored in them as outputs.

    A test cell that the student's code does not pass ends in an error, as it would in a kernel, and nothing
    that the student's code does can keep it from having an output.

    Args:
        notebook: whose test cells are the instructor's.
        student: runs all other cells; has run none yet.
        secret: from which all inputs are drawn. The same secret draws the same inputs.
        done: gets each cell when it has its outputs, text too.
        known: outputs of test cells, by name, which need not be run.
    """
    student.deadline = time.monotonic() + PATIENCE
    student.forbid(_forbidden(cell.source for cell in notebook.cells if is_test(cell)))
    numbers = itertools.count(1)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = next(numbers)
            cell.outputs = known.get(name_of(cell)) or _run(cell, student, secret)
        done(cell)


def _forbidden(tests: Iterable[str]) -> set[str]:
    """Return the libraries that the checks of these test cells forbid."""
    names = set().union(*map(dependencies.checks, tests)) & set(check.__all__)
    modules = {getattr(check, name).__module__ for name in names}
    return {library for module in modules for library in getattr(sys.modules[module], "BANNED", ())}


def _run(cell: NotebookNode, student: StudentProcess, secret: str) -> list[NotebookNode]:
    if not is_test(cell):
        return outputs.of_student_cell(student.run(cell.source))
    try:
        return examine(cell.source, float(cell.metadata.nbgrader.points), student, secret)
    finally:
        student.release()


def examine(source: str, points: float, student: StudentProcess, secret: str) -> list[NotebookNode]:
    """Run a test cell; return what it shows, the error that it ends in, if it does, and what it has cost.

    Args:
        points: the most that it can earn.
    """
    with verdict.collecting() as verdicts:
        shown = _examined(source, points, student, secret)
    ranking = [each for each in verdicts if each.ranks]
    costs = [each.cost for each in ranking if each.cost is not None]
    if not costs or len(costs) < len(ranking):
        return shown
    return [outputs.cost(statistics.mean(costs)), *shown]


def _examined(source: str, points: float, student: StudentProcess, secret: str) -> list[NotebookNode]:
    """Run a test cell; return what it shows.

    Its last expression, if that is a number, is its points, as in nbgrader.

    Raises:
        SandboxMissing: when this machine cannot run it.
    """
    checks, text = _SecretChecks(secret), io.StringIO()
    functions = {name: student.function(name) for name in _free_names(source)}
    namespace = functions | {"check": checks, "__name__": "__main__"}
    try:
        if time.monotonic() > student.deadline:
            raise OutOfTime
        with contextlib.redirect_stdout(text):
            value = _value(source, namespace)
        if checks.share < 1:
            return outputs.earned(math.floor(100 * Fraction(points) * checks.share) / 100, checks.failed)
        if value is not None:
            return outputs.earned(_within(value, points))
    except CheckFailed as failure:
        return outputs.failed(failure.verdict)
    except SandboxMissing:  # no fault of the student's
        raise
    except Exception as error:
        return [outputs.raised(type(error).__name__, str(error), f"{type(error).__name__}: {error}")]
    return [outputs.printed(text.getvalue() or "passed\n")]


def _value(source: str, namespace: dict[str, Any]) -> float | None:
    """Run the cell; return the number that its last expression comes to, if it is one."""
    tree, value = ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<test>", "exec"), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<test>", "eval"), namespace)
    return float(value) if isinstance(value, (int, float)) and type(value) is not bool else None


def _within(value: float, points: float) -> float:
    if 0 <= value <= points:
        return value
    raise ValueError(f"the test cell came to {value:g} points, of {points:g}")


class _SecretChecks:
    """All checks, with inputs that are drawn from a secret.

    Attributes:
        failed: verdicts of those that failed and still earned something.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._shares: list[Fraction] = []
        self.failed: list[Verdict] = []

    @property
    def share(self) -> Fraction:
        """The share of the points; each check of a cell counts the same."""
        return statistics.mean(self._shares) if self._shares else Fraction(1)

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(check, name)

        def call(*arguments: Any, seed: int = 0, **options: Any) -> None:
            digest = hashlib.sha256(f"{self._secret}/{name}/{seed}".encode()).digest()
            try:
                function(*arguments, seed=int.from_bytes(digest[:16], "big"), **options)
                self._shares.append(Fraction(1))
            except CheckFailed as failure:
                if failure.verdict.share == 0:
                    raise
                self._shares.append(failure.verdict.share)
                self.failed.append(failure.verdict)

        return call


def _free_names(source: str) -> set[str]:
    """Return the names that a test cell takes from the notebook."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    return {node.id for node in names} - bound - set(vars(builtins))
