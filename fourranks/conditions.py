"""Conditions that say for which ranks they hold, such as `rank == 0` or `dist.get_rank() in (1, 3)`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
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


def _value(node: ast.expr, names: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(bool() | int() as value):
            return value
        case ast.Name(name) if name in names:
            return names[name]
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), [], []) if name in _CALLS:
            return names[_CALLS[name]]
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
