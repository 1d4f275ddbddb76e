"""Where in the reader's code something happens: the line, and the loops and branches around it."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
from dataclasses import dataclass, replace

_CELL_FILE = re.compile(r"<ipython-input-(\d+)-")
_BLOCKS = {ast.For: "loop", ast.While: "loop", ast.If: "branch", ast.ExceptHandler: "handler"}


@dataclass(frozen=True)
class Block:
    """A loop or branch around a line."""

    kind: str  # "loop", "branch", "handler"
    line: int
    text: str  # its first line, for instance "if rank != 0:"


@dataclass(frozen=True)
class Place:
    """One line of the reader's code."""

    label: str  # "Cell In[3], line 4"
    text: str = ""  # "dist.barrier()"
    blocks: tuple[Block, ...] = ()  # innermost first, up to the function that the line is in

    def __str__(self) -> str:
        return f"{self.label}: {self.text}" if self.text else self.label


def place(file: str, line: int, function: str) -> Place:
    """The place of a line of a cell or a file, with its blocks.

    Only for the thread that runs the reader's code: when two threads parse at the same time, CPython 3.11
    raises a SystemError in the one that finishes last.
    """
    blocks = _blocks("".join(linecache.getlines(file)), line)
    return replace(line_at(file, line, function), blocks=blocks)


@functools.lru_cache(maxsize=1024)
def line_at(file: str, line: int, function: str) -> Place:
    """The same without its blocks, for any thread."""
    if cell := _CELL_FILE.match(file):
        label = f"Cell In[{cell[1]}], line {line}"
    elif "ipykernel" in file:  # a function from a cell that ran in the notebook itself
        label = f"{function}, line {line}"
    else:
        label = f"{os.path.basename(file)}, line {line}" if file else function
    lines = linecache.getlines(file)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Place(label, text)


def _blocks(source: str, line: int) -> tuple[Block, ...]:
    """The loops and branches that a line is in; none if the text is not Python, or another by now."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    text = source.splitlines()
    blocks: list[Block] = []
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if not hasattr(node, "lineno") or not node.lineno <= line <= node.end_lineno:
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            blocks.clear()
        elif kind := _BLOCKS.get(type(node)):
            blocks.append(Block(kind, node.lineno, _header(node, line, text[node.lineno - 1].strip())))
    return tuple(reversed(blocks))


def _header(node: ast.AST, line: int, text: str) -> str:
    """The first line of a block, or for the other branch of an `if` its negation."""
    in_other_branch = isinstance(node, ast.If) and node.orelse and line >= node.orelse[0].lineno
    return f"else of {text}" if in_other_branch else text
