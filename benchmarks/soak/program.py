"""A random SPMD program as a tree of `statements`, loops and branches.

`source` is the text of its cell, `unroll` follows one rank through the tree for the `oracle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .actions import Stage
from .statements import INDENT, Stop, evaluate


@dataclass(frozen=True)
class Leave:
    """Leaves the innermost loop ("break") or the program ("return")."""

    how: str

    def lines(self) -> list[str]:
        return [self.how]


@dataclass(frozen=True)
class Repeat:
    """A loop."""

    times: int
    body: tuple[Any, ...]

    def lines(self) -> list[str]:
        return [f"for step in range({self.times}):", *_indented(self.body)]


@dataclass(frozen=True)
class Choose:
    """A branch."""

    condition: str
    body: tuple[Any, ...]
    orelse: tuple[Any, ...] = ()

    def lines(self) -> list[str]:
        lines = [f"if {self.condition}:", *_indented(self.body)]
        if len(self.orelse) == 1 and isinstance(self.orelse[0], Choose):
            first, *rest = self.orelse[0].lines()
            return [*lines, f"el{first}", *rest]
        return [*lines, "else:", *_indented(self.orelse)] if self.orelse else lines


@dataclass(frozen=True)
class Program:
    """One program for a world of this size, in a function (which a rank may leave by `return`) or not."""

    world_size: int
    body: tuple[Any, ...]
    in_function: bool = False

    @property
    def source(self) -> str:
        """The text of the cell; `world` gives each rank the few helpers that it uses."""
        lines = [line for statement in self.body for line in statement.lines()]
        if self.in_function:
            lines = ["def program():", *_indented(self.body), "program()"]
        return "\n".join(["works = {}", *lines, "stamp()"])

    def unroll(self, rank: int) -> list[Stage]:
        """All that one rank does, if nothing keeps it from going on."""
        stages: list[Stage] = []
        _follow(self.body, rank, 0, stages)
        return stages


def _follow(body: tuple[Any, ...], rank: int, step: int, stages: list[Stage]) -> str | None:
    """Follow a rank through statements; returns how it left them, None if it came to their end."""
    for statement in body:
        if isinstance(statement, Leave):
            return statement.how
        if isinstance(statement, Choose):
            chosen = statement.body if evaluate(statement.condition, rank, step) else statement.orelse
            left = _follow(chosen, rank, step, stages)
        elif isinstance(statement, Repeat):
            left = _repeat(statement, rank, stages)
        else:
            stages += statement.stages(rank, step)
            left = "stop" if isinstance(statement, Stop) else None
        if left:
            return left
    return None


def _repeat(loop: Repeat, rank: int, stages: list[Stage]) -> str | None:
    for step in range(loop.times):
        left = _follow(loop.body, rank, step, stages)
        if left:
            return None if left == "break" else left
    return None


def walk(body: tuple[Any, ...], path: tuple = (), in_loop: bool = False) -> Iterator[tuple[tuple, Any, bool]]:
    """Every statement with its path from the root, and whether a loop is around it."""
    for index, statement in enumerate(body):
        yield (*path, index), statement, in_loop
        for part in ("body", "orelse"):
            inside = in_loop or isinstance(statement, Repeat)
            yield from walk(getattr(statement, part, ()), (*path, index, part), inside)


def _indented(body: tuple[Any, ...]) -> list[str]:
    inner = [line for statement in body for line in statement.lines()] or ["pass"]
    return [INDENT + line for line in inner]
