"""Conditions that say for which ranks they hold, such as `rank == 0` or `dist.get_rank() in (1, 3)`."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, among: value in among,
    ast.NotIn: lambda value, among: value not in among,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}
_CALLS = {"get_rank": "rank", "get_world_size": "world_size"}


class _Unknown(Exception):
    """It depends on more than the rank."""


def holds(condition: ast.expr, rank: int, world_size: int) -> bool | None:
    """Tell whether a condition holds on a rank; None if it depends on more than the rank."""
    try:
        return bool(_value(condition, {"rank": rank, "world_size": world_size}))
    except (_Unknown, ArithmeticError, TypeError, RecursionError):
        return None


def names_for_the_rank(tree: ast.AST) -> dict[str, ast.expr]:
    """Return what the code computes from rank and world size alone: `r = dist.get_rank()`, `master = r == 0`.

    Only names that are assigned once. The constant of a program without ranks does not count: in
    `if ddp: master = r == 0`, `else: master = True`.
    """
    times = Counter(_bound(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            with_ranks = dict(_assigned(node.body))
            times.subtract(
                name
                for name, value in _assigned(node.orelse)
                if name in with_ranks and isinstance(value, ast.Constant)
            )
    found: dict[str, ast.expr] = {}
    for name, value in sorted(_assigned([tree]), key=lambda each: each[1].lineno):
        if times[name] == 1 and _is_of_the_rank(written := written_out(value, found)):
            found[name] = written
    return found


def written_out(node: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression with what it has names for in place of these."""
    written: ast.expr = _Written(names).visit(deepcopy(node))
    return written


class _Written(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._names.get(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._names.get(ast.unparse(node)) or self.generic_visit(node)


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node)


def _assigned(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name, or attribute, to which these statements assign one value, with this value."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        match node:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                yield from zip(map(ast.unparse, targets), values, strict=True)
            case ast.Assign([target], value) | ast.AnnAssign(target, value=ast.expr() as value):
                yield ast.unparse(target), value


def _is_of_the_rank(node: ast.expr) -> bool:
    """Tell whether the rank and the world size are all that an expression depends on."""
    match node:
        case ast.Compare(ast.Name(name) | ast.Attribute(attr=name), _, [ast.Constant()]) if "rank" in name:
            return True  # whatever rank that is
    is_constant = not any(isinstance(each, (ast.Name, ast.Call)) for each in ast.walk(node))
    return not is_constant and holds(node, 0, 2) is not None and holds(node, 1, 2) is not None


def _value(node: ast.expr, names: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(bool() | int() as value):
            return value
        case ast.Name(name) if name in names:
            return names[name]
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), [], []) if name in _CALLS:
            return names[_CALLS[name]]
        case ast.Call(
            ast.Name("int"),
            [
                ast.Subscript(slice=ast.Constant("RANK" | "WORLD_SIZE" as variable))
                | ast.Call(args=[ast.Constant("RANK" | "WORLD_SIZE" as variable), *_])
            ],
        ):  # of the environment
            return names[variable.lower()]
        case ast.Tuple(parts) | ast.List(parts) | ast.Set(parts):
            return [_value(part, names) for part in parts]
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, names)
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, names)
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATORS:
            return _OPERATORS[type(operation)](_value(left, names), _value(right, names))
        case ast.Compare(
            ast.Name("local_rank") | ast.Attribute(attr="local_rank"),
            [operation],
            [ast.UnaryOp(ast.USub(), ast.Constant(1))],
        ) if type(operation) in _OPERATORS:  # -1 stands for a program without ranks
            return _OPERATORS[type(operation)](0, -1)
        case ast.Compare(left, [operation], [right]) if type(operation) in _OPERATORS:
            return _OPERATORS[type(operation)](_value(left, names), _value(right, names))
        case ast.BoolOp(operation, parts):
            return _joined(isinstance(operation, ast.Or), parts, names)
    raise _Unknown


def _joined(decides: bool, parts: list[ast.expr], names: Mapping[str, int]) -> bool:
    """Evaluate `or`, which one part that is true decides, or `and`, which one that is false decides."""
    unknown = False
    for part in parts:
        try:
            if bool(_value(part, names)) is decides:
                return decides
        except _Unknown:
            unknown = True
    if unknown:
        raise _Unknown
    return not decides
