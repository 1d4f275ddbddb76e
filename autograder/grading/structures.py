"""Which answers have the same structure, whatever the names, numbers, comments and docstrings in them.

`report` shows them as worth a look. Short answers look alike by themselves, and so do good ones.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

TRIVIAL = 60  # nodes of a syntax tree, about eight short lines: less is alike by accident
LONGEST = 100_000  # characters; nobody writes an answer like that


@dataclass(frozen=True)
class Group:
    """Students whose answers have the same structure.

    Attributes:
        size: of the structure, in nodes of its syntax tree.
        as_solved: whether the course's own solution has it, too.
    """

    cell: str
    students: tuple[str, ...]
    size: int
    as_solved: bool


def alike(
    answers: Mapping[str, Mapping[str, str]], released: Mapping[str, str], solution: Mapping[str, str]
) -> list[Group]:
    """Groups of two and more, the most telling first.

    Args:
        answers: of each student, the source of each cell by name.
        released: the cells as they were handed out.
        solution: the course's own answers; cells that it has not are no answers.
    """
    having: dict[tuple[str, str], list[str]] = defaultdict(list)
    handed_out = {(cell, _structure(source)) for cell, source in released.items()}
    solved = {(cell, _structure(source)) for cell, source in solution.items()}
    for student, cells in sorted(answers.items()):
        for cell in sorted(set(cells) & set(solution)):
            having[cell, _structure(cells[cell])].append(student)
    groups = [
        Group(cell, tuple(students), size, (cell, structure) in solved)
        for (cell, structure), students in having.items()
        if (size := structure.count("(")) >= TRIVIAL
        and len(students) > 1
        and (cell, structure) not in handed_out
    ]
    return sorted(groups, key=lambda group: (group.as_solved, -group.size, group.cell, group.students))


def _structure(source: str) -> str:
    """The syntax tree as text, without what can be changed without a thought; "" if there is none."""
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
    """A docstring, or what somebody put in the place of a comment."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
