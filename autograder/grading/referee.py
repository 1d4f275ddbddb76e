"""Grades one submission: its cells run in a sandbox, the instructor's test cells in this process.

A test cell's names for what students wrote are handles: a check that uses one makes the sandbox use what the
student has called so. Nothing else of the submission comes here, and of the checks nothing but inputs goes
there.
"""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import contextlib
import hashlib
import io
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from autograder import check
from autograder.grading.submission import is_test, name_of
from autograder.sandbox.remote import Shown, StudentProcess
from autograder.verdict import CheckFailed
from fourranks.errors import plain

PATIENCE = 1200.0  # seconds for a whole submission; the slowest solution takes a tenth of it on two cores
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass
class OutOfTime(Exception):
    """A test cell was not reached in time."""

    def __str__(self) -> str:
        return f"The submission took more than {PATIENCE:g} s; this question was not reached."


def grade(
    notebook: NotebookNode,
    student: StudentProcess,
    secret: str,
    done: Callable[[NotebookNode], None] = lambda cell: None,
    known: Mapping[str, list[NotebookNode]] = MappingProxyType({}),
) -> None:
    """Run a notebook's cells in their order; what they come to is stored in them as outputs.

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
    numbers = itertools.count(1)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = next(numbers)
            cell.outputs = known.get(name_of(cell)) or _run(cell, student, secret)
        done(cell)


def _run(cell: NotebookNode, student: StudentProcess, secret: str) -> list[NotebookNode]:
    if is_test(cell):
        return examine(cell.source, student, secret, student.deadline)
    return _outputs(student.run(cell.source))


def examine(source: str, student: StudentProcess, secret: str, deadline: float) -> list[NotebookNode]:
    """Run a test cell; what it shows, and the error that it ends in, if it does."""
    text = io.StringIO()
    namespace = {name: student.function(name) for name in _free_names(source)}
    namespace |= {"check": _SecretChecks(secret), "__name__": "__main__"}
    try:
        if time.monotonic() > deadline:
            raise OutOfTime
        with contextlib.redirect_stdout(text):
            exec(compile(source, "<test>", "exec"), namespace)
    except CheckFailed as failure:
        shown = {"text/plain": plain(str(failure.verdict)), "text/html": failure.verdict._repr_html_()}
        error = _error("CheckFailed", failure.verdict.headline, failure.verdict.headline)
        return [new_output("display_data", data=shown), error]
    except Exception as error:
        return [_error(type(error).__name__, str(error), f"{type(error).__name__}: {error}")]
    finally:
        student.release()
    return [new_output("stream", name="stdout", text=text.getvalue() or "passed\n")]


class _SecretChecks:
    """All checks, with inputs that are drawn from a secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(check, name)

        def call(*arguments: Any, seed: int = 0, **options: Any) -> None:
            digest = hashlib.sha256(f"{self._secret}/{name}/{seed}".encode()).digest()
            function(*arguments, seed=int.from_bytes(digest[:4]), **options)

        return call


def _free_names(source: str) -> set[str]:
    """The names that a test cell takes from the notebook."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    return {node.id for node in names} - bound - set(vars(builtins))


def _outputs(shown: Shown) -> list[NotebookNode]:
    """What a student's cell showed, as text and pictures only: nothing that a browser would run."""
    outputs = [new_output("stream", name="stdout", text=shown.text)] if shown.text else []
    for display in shown.displays:
        data = {kind: value for kind, value in display.items() if _is_harmless(kind, value)}
        outputs += [new_output("display_data", data=data)] if data else []
    if shown.error is not None:
        fields = [shown.error.get(name, "") for name in ("name", "message", "traceback")]
        outputs.append(_error(*fields))
    return outputs


def _is_harmless(kind: str, value: str) -> bool:
    if kind != "image/png":
        return kind == "text/plain"
    with contextlib.suppress(binascii.Error):
        return base64.b64decode(value, validate=True).startswith(PNG)
    return False


def _error(name: str, message: str, traceback: str) -> NotebookNode:
    return new_output(
        "error", ename=name, evalue=plain(message), traceback=[plain(line) for line in traceback.splitlines()]
    )
