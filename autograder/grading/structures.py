"""Finds answers of the same structure, whatever the names, numbers, comments and docstrings in them.

`report` shows them as worth a look. Short answers look alike by themselves, and so do good ones.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from autograder.grading.pool import Failed, Pool, usable_cores

TRIVIAL = 60  # nodes of a syntax tree, about eight short lines: less is alike by accident
LONGEST = 100_000  # characters; no student writes an answer like that
SECONDS = 60.0  # for the answers of a student
MEMORY = 1 << 30  # bytes


@dataclass(frozen=True)
class Likeness:
    """Students whose answers have the same structure.

    Attributes:
        size: of the structure, in nodes of its syntax tree.
        as_solved: whether the course's own solution has it, too.
    """

    cell: str
    students: tuple[str, ...]
    size: int
    as_solved: bool


@dataclass(frozen=True)
class Structure:
    """The structure of an answer: the number of nodes of its syntax tree, and a digest of them."""

    cell: str
    size: int
    digest: str


def alike(
    answers: Mapping[str, Mapping[str, str]], released: Mapping[str, str], solution: Mapping[str, str]
) -> list[Likeness]:
    """Return the structures that two and more students share, the most telling first.

    Args:
        answers: of each student, the source of each cell by name.
        released: the cells as they were handed out.
        solution: the course's own answers; cells that it has not are no answers.
    """
    having: dict[Structure, list[str]] = defaultdict(list)
    handed_out = {_structure(cell, source) for cell, source in released.items()}
    solved = {_structure(cell, source) for cell, source in solution.items()}
    for student, structures in sorted(_structures(answers, set(solution)).items()):
        for structure in structures:
            having[structure].append(student)
    groups = [
        Likeness(structure.cell, tuple(students), structure.size, structure in solved)
        for structure, students in having.items()
        if structure.size >= TRIVIAL and len(students) > 1 and structure not in handed_out
    ]
    return sorted(groups, key=lambda group: (group.as_solved, -group.size, group.cell, group.students))


def _structures(answers: Mapping[str, Mapping[str, str]], cells: set[str]) -> dict[str, list[Structure]]:
    """Return each student's structures, unless the student's code takes too long to parse."""
    given = {
        name: tuple((cell, own[cell]) for cell in sorted(cells & set(own))) for name, own in answers.items()
    }
    shares = [(core,) for core in usable_cores()][: len(given)]
    with Pool(_of_one, shares, SECONDS, MEMORY) as workers:
        found = dict(workers.results(dict.fromkeys(given.values())))
    return {name: found[own] for name, own in given.items() if not isinstance(found[own], Failed)}


def _of_one(cells: tuple[tuple[str, str], ...]) -> list[Structure]:
    """Parse answers, in a process with limits: some texts of a hundred characters take minutes."""
    return [_structure(cell, source) for cell, source in cells]


def _structure(cell: str, source: str) -> Structure:
    text = _without_names(source)
    return Structure(cell, text.count("("), hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())


def _without_names(source: str) -> str:
    """Return the syntax tree as text, without what is changed without a thought; "" if there is none."""
    if len(source) > LONGEST:
        return ""
    try:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            _strip(node)
        return ast.dump(tree, annotate_fields=False)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _strip(node: ast.AST) -> None:
    if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        node.body = [line for line in node.body if not _is_text(line)]
    match node:
        case ast.Name():
            node.id = "_"
        case ast.arg():
            node.arg, node.annotation = "_", None
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            node.name, node.returns = "_", None
        case ast.ClassDef() | ast.ExceptHandler():
            node.name = "_"
        case ast.Constant():
            node.value = node.kind = None


def _is_text(line: ast.stmt) -> bool:
    """Tell whether this is a docstring, or a text in the place of a comment."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
