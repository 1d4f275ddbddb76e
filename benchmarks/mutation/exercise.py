"""Reads an exercise as grading meets it: the solved cells, and the test cells with their hidden tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder.notebooks import source

SOURCE = Path(__file__).parents[2] / "source"
BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"


@dataclass(frozen=True)
class Cell:
    """A code cell; `line` is that of the exercise on which it starts."""

    name: str
    source: str
    line: int

    @property
    def definitions(self) -> dict[str, ast.AST]:
        """The functions and classes that it defines, by name."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        return {node.name: node for node in ast.parse(self.source).body if isinstance(node, kinds)}

    @property
    def names(self) -> set[str]:
        """The names that its code uses."""
        return _names(ast.parse(self.source))

    @property
    def solved_lines(self) -> set[int]:
        """The lines, counted from 1 in the cell, that students have to write."""
        lines, inside = set(), False
        for number, text in enumerate(self.source.splitlines(), 1):
            inside = (inside or BEGIN in text) and END not in text
            if inside:
                lines.add(number)
        return lines


@dataclass(frozen=True)
class Exercise:
    """A topic's exercise: its given code, its solutions, and its tests."""

    topic: str
    setup: str
    solutions: tuple[Cell, ...]
    tests: tuple[Cell, ...]

    def definitions(self, instead: Cell | None = None) -> str:
        """The code that defines everything, with a cell in the place of its namesake."""
        cells = [instead if instead and cell.name == instead.name else cell for cell in self.solutions]
        return "\n\n".join([self.setup, *(cell.source for cell in cells)])

    def tests_of(self, name: str) -> tuple[Cell, ...]:
        """The test cells whose code comes to the function or class of this name: those that name it first."""
        uses = {
            defined: _names(node) for cell in self.solutions for defined, node in cell.definitions.items()
        }
        reaching = [cell for cell in self.tests if name in _reached(cell.names, uses)]
        return tuple(sorted(reaching, key=lambda cell: name not in cell.names))


def topics() -> list[str]:
    """The topics that have an exercise."""
    return sorted(path.parent.name for path in SOURCE.glob("*/exercise.py"))


def read(topic: str, folder: Path = SOURCE) -> Exercise:
    """The exercise of a topic, such as "02_collectives"."""
    path = folder / topic / "exercise.py"
    notebook = source.read(path, topic)
    text = path.read_text(encoding="utf-8")
    setup, solutions, tests = [], [], []
    for cell in notebook.cells:
        fields = cell.metadata.get("nbgrader", {})
        if cell.cell_type != "code" or not fields:
            continue
        kind = solutions if fields["solution"] else tests if fields["grade"] else setup
        kind.append(Cell(cell.id, _without_magics(cell.source), _line(text, cell.source)))
    return Exercise(topic, "\n\n".join(cell.source for cell in setup), tuple(solutions), tuple(tests))


def _without_magics(code: str) -> str:
    return "\n".join("" if line.startswith(("%", "# %")) else line for line in code.splitlines())


def _line(text: str, code: str) -> int:
    """The line of the file on which a cell's code starts; 0 if it has magics, comments in the file."""
    before, found, _ = text.partition(code)
    return before.count("\n") + 1 if found else 0


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _reached(names: set[str], uses: dict[str, set[str]]) -> set[str]:
    """Names that are used, or used by what is used."""

    def follow(name: str) -> Iterator[str]:
        if name not in seen:
            seen.add(name)
            for used in uses.get(name, ()):
                follow(used)

    seen: set[str] = set()
    for name in names:
        follow(name)
    return seen
