"""Reads the reader's code around a line: loops and branches, ways out, and the calls that come after it.

Only for lines that an error is about to show, and in the notebook's process alone: parsing takes 0.15 ms a
line, and two threads of a rank must not parse at the same time (CPython 3.11 then raises a SystemError in
the one that finishes last).
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
import sysconfig
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from .conditions import holds, names_for_the_rank, written_out

LONGEST = 2000  # lines that are parsed as a whole; of a longer file, the statement around the line

_KINDS = {
    ast.For: "loop",
    ast.While: "loop",
    ast.ListComp: "loop",
    ast.SetComp: "loop",
    ast.DictComp: "loop",
    ast.GeneratorExp: "loop",
    ast.If: "branch",
    ast.IfExp: "branch",
    ast.BoolOp: "branch",  # `rank == 0 and dist.barrier()`
    ast.match_case: "branch",
    ast.ExceptHandler: "handler",
    ast.Try: "try",
}
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_LOOPS = (ast.For, ast.While)  # that `break` and `continue` are for
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Placed: TypeAlias = (  # nodes that have line numbers
    ast.stmt | ast.expr | ast.ExceptHandler | ast.pattern | ast.arg | ast.keyword | ast.alias
)
_Path: TypeAlias = tuple[tuple[ast.AST, str], ...]  # nodes, and the part of each that leads to the next
_NAMES_THE_RANK = re.compile(
    r"rank|process_index|\bis_\w*(main|master|leader|chief|first|_zero)", re.IGNORECASE
)
_BEGINS_NO_STATEMENT = re.compile(r"(?=[\s#)\]}]|$)|(else|elif|except|finally)\b")


@dataclass(frozen=True)
class Block:
    """A loop or branch around a line."""

    kind: str  # "loop", "branch", "handler", "try"
    line: int
    end: int  # its last line
    text: str  # its first line, for instance "if rank != 0:"; for the other branch "else of if rank != 0:"
    statement: str  # the first line of the whole statement, which is another one only for a `case`
    begin: int  # the number of that line
    # Of a branch, under which it is taken; names that the code has for the rank are written out.
    condition: ast.expr | None = field(default=None, compare=False)

    def is_taken_by(self, rank: int, world_size: int) -> bool | None:
        """Tell whether a rank takes this branch; None if that depends on more than the rank."""
        return holds(self.condition, rank, world_size) if self.condition is not None else None

    @property
    def names_the_rank(self) -> bool:
        """Whether it is plain that ranks are meant to differ here."""
        condition = ast.unparse(self.condition) if self.condition is not None else ""
        return _NAMES_THE_RANK.search(f"{self.text} {self.statement} {condition}") is not None

    @property
    def is_main_part(self) -> bool:
        """Whether every rank comes here that runs the program: `if __name__ == "__main__":`."""
        return self.kind == "branch" and "__name__" in self.text


@dataclass(frozen=True)
class Exit:
    """A statement that leaves a function or goes on with a loop, and the branch that it stands in."""

    keyword: str  # "return", "break", "continue", "raise", "exit"
    line: int


class Source:
    """The code of the cells and files that calls came from.

    Args:
        cells: text by file; other files are read from the disk.
    """

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def blocks(self, file: str, line: int, called: Set[str] = frozenset()) -> tuple[Block, ...]:
        """Return the loops and branches around a line, innermost first, up to the function that it is in.

        Args:
            file: of the line.
            line: its number.
            called: names of functions that the line calls; what is around it is what is around their calls.
        """
        return self._around(file, line).blocks(line, called)

    def calls_from(self, file: str, line: int) -> list[tuple[str, int]]:
        """List the function's calls on this line and behind it, but not on another branch."""
        return self._around(file, line).calls_from(line)

    def exits(self, file: str, line: int) -> list[Exit]:
        """List statements by which the function around a line may end, or a loop, or its iteration."""
        return self._around(file, line).exits(line)

    def _around(self, file: str, line: int) -> _Definition:
        """Return the function around a line; nothing if it is Python's own."""
        if file.startswith(_STANDARD_LIBRARY):  # how Python runs a thread says nothing of the reader's code
            return _Definition(None, (), 1)
        text = self._cells.get(file) or "".join(linecache.getlines(file))
        first, lines = _statements_around(text.splitlines(), line)
        return _innermost(tuple(lines), first, line)


def _statements_around(lines: list[str], line: int) -> tuple[int, list[str]]:
    """Return the number of the first line, and the lines, of all code or of the statement around a line."""
    if len(lines) <= LONGEST:
        return 1, lines
    begin = min(line, len(lines))
    while begin > 1 and _BEGINS_NO_STATEMENT.match(lines[begin - 1]):
        begin -= 1
    end = begin + 1
    while end <= len(lines) and _BEGINS_NO_STATEMENT.match(lines[end - 1]):
        end += 1
    return (begin, lines[begin - 1 : end - 1]) if end - begin <= LONGEST else (1, [])


@functools.lru_cache(maxsize=64)
def _innermost(lines: tuple[str, ...], first: int, line: int) -> _Definition:
    """Return the innermost function around a line, or the cell itself; nothing if the text is not Python."""
    try:
        tree, names = _parsed(lines)
    except (SyntaxError, ValueError, SystemError, RecursionError, MemoryError):
        return _Definition(None, (), 1)
    found, target = tree, line - first + 1
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, _FUNCTIONS) and _covers(node, target):
            found = node
    return _Definition(found, lines, first, names)


@functools.lru_cache(maxsize=8)
def _parsed(lines: tuple[str, ...]) -> tuple[ast.AST, Mapping[str, ast.expr]]:
    """Return the syntax tree of a text, and what it has names for."""
    tree = ast.parse("\n".join(lines))
    return tree, names_for_the_rank(tree)


class _Definition:
    """The syntax tree of one function, asked by line numbers of its file."""

    def __init__(
        self,
        root: ast.AST | None,
        lines: tuple[str, ...],
        first: int,
        names: Mapping[str, ast.expr] = MappingProxyType({}),
    ) -> None:
        self._lines, self._offset, self._names = lines, first - 1, names
        self._paths = [*_paths(root)] if root is not None else []
        matches = (node for *_, (node, _) in self._paths if isinstance(node, ast.Match))
        self._match_of = {case: match for match in matches for case in match.cases}

    def blocks(self, line: int, called: Set[str] = frozenset()) -> tuple[Block, ...]:
        here = [path for path in self._paths if _covers(path[-1][0], line - self._offset)]
        around = {self._around(path) for path in here if _is_call_of(path[-1][0], called)}
        if len(around) == 1:
            return around.pop()
        # A call's arguments were computed before the call was made: only code around it counts.
        reaching = (path for path in here if not any(isinstance(node, ast.Call) for node, _ in path[:-1]))
        path = max(reaching, key=len, default=())
        return tuple(block for node, arm in reversed(path) if (block := self._block(node, arm)))

    def _around(self, path: _Path) -> tuple[Block, ...]:
        """Return the loops and branches that decide whether and how often the last node of a path runs."""
        return tuple(
            block
            for (node, arm), (child, part) in reversed([*pairwise(path)])
            if not _runs_once(node, arm, child, part) and (block := self._block(node, arm))
        )

    def calls_from(self, line: int) -> list[tuple[str, int]]:
        taken = {block.line: block.text for block in self.blocks(line)}
        found = set()
        for path in self._paths:
            node = path[-1][0]
            if not isinstance(node, ast.Call) or node.lineno + self._offset < line:
                continue
            around = [block for each, arm in path if (block := self._block(each, arm))]
            if all(taken.get(block.line, block.text) == block.text for block in around):
                # An inner call is made before the call that it is an argument of.
                order = node.lineno + self._offset, node.end_lineno, node.end_col_offset
                found.add((order, _name(node.func)))
        return [(name, line) for (line, *_), name in sorted(found)]

    def exits(self, line: int) -> list[Exit]:
        loops = {block.line for block in self.blocks(line) if block.kind == "loop"}
        found = []
        for path in self._paths:
            node, at = path[-1][0], getattr(path[-1][0], "lineno", 0) + self._offset
            keyword = _way_out(node)
            if keyword is None:
                continue
            inside = [n.lineno + self._offset for n, arm in path if isinstance(n, _LOOPS) and arm == "body"]
            if keyword not in ("break", "continue") or inside[-1] in loops:
                found.append(Exit(keyword, at))
        return sorted(found, key=lambda way: way.line)

    def _block(self, node: ast.AST, arm: str) -> Block | None:
        kind = _KINDS.get(type(node))
        if kind is None or not isinstance(node, _Placed | ast.match_case) or not _is_inside(node, arm):
            return None
        whole = self._match_of[node] if isinstance(node, ast.match_case) else node
        first, begin, end = _first_line(node), _first_line(whole), _last_line(node)
        text, statement = self._lines[first - 1].strip(), self._lines[begin - 1].strip()
        text = f"else of {text}" if isinstance(node, ast.If) and arm == "orelse" else text
        test = _test(node, arm)
        condition = written_out(test, self._names) if test is not None else None
        first, end, begin = (line + self._offset for line in (first, end, begin))
        return Block(kind, first, end, text, statement, begin, condition)


def _test(node: ast.AST, arm: str) -> ast.expr | None:
    if not isinstance(node, (ast.If, ast.IfExp)):
        return None
    return ast.UnaryOp(ast.Not(), node.test) if arm == "orelse" else node.test


def _is_call_of(node: ast.AST, names: Set[str]) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) in names


def _runs_once(node: ast.AST, arm: str, child: ast.AST, part: str) -> bool:
    """Tell whether a part of an expression, or of an `if`, runs whenever and as often as the whole does."""
    match node:
        case ast.If() | ast.IfExp():
            return arm == "test"
        case ast.BoolOp(values=[first, *_]):
            return child is first
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return child is node.generators[0] and part == "iter"
    return False


def _way_out(node: ast.AST) -> str | None:
    """Say how a statement leaves what it stands in, if it does."""
    if isinstance(node, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
        return type(node).__name__.lower()
    is_exit = isinstance(node, ast.Call) and _name(node.func) in ("exit", "quit", "_exit")
    return "exit" if is_exit else None


def _paths(root: ast.AST) -> Iterator[_Path]:
    """Yield every node of a function with all nodes around it and the part of each that leads to it."""
    stack: list[_Path] = [((child, ""),) for _, child in _children(root)]
    while stack:
        path = stack.pop()
        yield path
        node = path[-1][0]
        if not isinstance(node, _FUNCTIONS):
            stack += [(*path[:-1], (node, part), (child, "")) for part, child in _children(node)]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _covers(node: ast.AST, line: int) -> bool:
    return isinstance(node, _Placed) and node.lineno <= line <= _last_line(node)


def _is_inside(node: ast.AST, arm: str) -> bool:
    """Tell whether what stands in this part of a statement is run by its loop, or on its branch, alone."""
    if isinstance(node, ast.For):
        return arm == "body"
    if isinstance(node, ast.Try):
        return arm == "body" and bool(node.handlers)
    return not (isinstance(node, ast.If) and arm == "test" and node.body[0].lineno != node.lineno)


def _first_line(node: _Placed | ast.match_case) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno


def _last_line(node: _Placed | ast.match_case) -> int:
    last = node.body[-1] if isinstance(node, ast.match_case) else node
    return last.end_lineno or last.lineno


def _name(function: ast.AST) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))
