"""Makes the mutants of an exercise: its solutions with one small fault each."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .exercise import Cell, Exercise
from .operators import OPERATORS, exchanged, swapped_statements

ANNOTATIONS = {"annotation", "returns", "type_params"}


@dataclass(frozen=True)
class Mutant:
    """A solved cell with one fault.

    Attributes:
        function: in which it is; of a method also the class, as in "Wrapper.forward".
        line: of the exercise.
        fault: the operator's name, in words.
        before, after: the statements that differ, without what is below them.
        cell: the faulty cell.
    """

    topic: str
    function: str
    line: int
    fault: str
    before: str
    after: str
    cell: Cell

    def __str__(self) -> str:
        return f"{self.topic}, line {self.line}, {self.function}: {self.before}  →  {self.after}"


def mutants(exercise: Exercise) -> Iterator[Mutant]:
    """Every mutant of an exercise, in the order of its text."""
    for cell in exercise.solutions:
        yield from _of_cell(exercise.topic, cell)


def _of_cell(topic: str, cell: Cell) -> Iterator[Mutant]:
    tree = ast.parse(cell.source)
    original = ast.unparse(tree)
    seen, solved = {original}, cell.solved_lines
    for place in _places(tree):
        if place.line not in solved:
            continue
        for fault, value in place.faults():
            with place.holding(value):
                text = ast.unparse(tree)
            if text not in seen and _compiles(text):
                seen.add(text)
                faulty, line = dataclasses.replace(cell, source=text), cell.line + place.line - 1
                yield Mutant(topic, place.function, line, fault, *_difference(original, text), faulty)


@dataclass(frozen=True)
class _Place:
    """A statement or expression, by where its parent has it: in a field, or at an index of the list there."""

    function: str
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST

    @property
    def line(self) -> int:
        return self.node.lineno

    def faults(self) -> Iterator[tuple[str, Any]]:
        """Names of operators, and what the field may be by mistake."""
        for operator in OPERATORS:
            for instead in operator(self.node):
                yield operator.__name__.replace("_", " "), self._field_with(instead)
        following = [] if self.index is None else getattr(self.parent, self.field)[self.index + 1 :]
        if following and (swapped := swapped_statements(self.node, following[0])):
            before = getattr(self.parent, self.field)[: self.index]
            yield "swapped statements", [*before, *swapped, *following[1:]]

    def _field_with(self, instead: ast.AST | list[ast.stmt]) -> Any:
        if self.index is None:
            return instead
        items = instead if isinstance(instead, list) else [instead]
        return exchanged(getattr(self.parent, self.field), self.index, *items)

    @contextlib.contextmanager
    def holding(self, value: Any) -> Iterator[None]:
        """The tree with another value in this field, for a while."""
        kept = getattr(self.parent, self.field)
        setattr(self.parent, self.field, value)
        try:
            yield
        finally:
            setattr(self.parent, self.field, kept)


def _places(parent: ast.AST, function: str = "") -> Iterator[_Place]:
    """Every place for a fault below a node, in the order of the text."""
    for field, value in ast.iter_fields(parent):
        if field in ANNOTATIONS:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or _is_no_matter(node):
                continue
            within = _name_within(node, parent, function)
            if isinstance(node, (ast.expr, ast.stmt)):
                yield _Place(within, parent, field, index, node)
            if not isinstance(node, ast.Raise):  # checks do not look at its message
                yield from _places(node, within)


def _is_no_matter(node: ast.AST) -> bool:
    """Whether it is a docstring, or text with values in it, or a guard against what cannot happen."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.keyword(arg="strict"):
            return True
    return False


def _name_within(node: ast.AST, parent: ast.AST, function: str) -> str:
    """The owner of the code inside a node: a function of the exercise, or a method and its class."""
    if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not function):
        return node.name
    if isinstance(node, ast.FunctionDef) and isinstance(parent, ast.ClassDef):
        return f"{function}.{node.name}"
    return function


def _compiles(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # such as calling a constant
        try:
            compile(text, "<mutant>", "exec")
        except SyntaxError:
            return False
    return True


def _difference(original: str, text: str) -> tuple[str, str]:
    """The statements that differ, each on one line; of a doubled one also that which it repeats."""
    old, new = ([line.strip() for line in code.splitlines()] for code in (original, text))
    first = _in_common(old, new)
    same_end = _in_common(old[first:][::-1], new[first:][::-1])
    if first + same_end == len(old):  # only more of them
        first -= 1
    before, after = old[first : len(old) - same_end], new[first : len(new) - same_end]
    return "; ".join(before), "; ".join(after) or "nothing"


def _in_common(some: list[str], others: list[str]) -> int:
    """How many lines are the same at the beginning."""
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))
    )
