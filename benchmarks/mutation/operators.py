"""Small faults: functions from a node of a syntax tree to nodes that may stand there by mistake.

The usual operators of mutation testing, and those that distributed programs suggest: a dropped modulo, the
wrong neighbour, a forgotten group, a wait that is missing, a collective that is called twice.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.Add,
}
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CONFUSED = {"left": "right", "rank": "world_size", "min": "max", "any": "all"}
CONFUSED_WITH = CONFUSED | {b: a for a, b in CONFUSED.items()} | {"SUM": "MAX"}
GLOBAL = {"group_dst": "dst", "group_src": "src"}  # the position in the group taken for the global rank
# f(x) and x.f() that may be forgotten: the program still runs.
FUNCTIONS = {"reversed", "sorted", "list", "tuple", "set", "abs", "int", "float", "bool", "round"}
METHODS = {
    "clone",
    "detach",
    "contiguous",
    "copy",
    "flatten",
    "abs",
    "sum",
    "mean",
    "float",
    "double",
    "item",
}
NO_MESSAGE = {  # or none that matters if it comes twice
    "barrier",
    "get_rank",
    "get_world_size",
    "get_process_group_ranks",
    "get_backend",
    "P2POp",
    "is_initialized",
}
LARGE = 100  # one more or less is hardly a fault beyond it

Replacement = ast.AST | list[ast.stmt]


def changed(node: ast.AST, **fields: Any) -> ast.AST:
    """The node with some fields different; the others are shared."""
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **fields}), node)


def exchanged(items: list, index: int, *instead: Any) -> list:
    """The list with something, or nothing, in the place of one item."""
    return [*items[:index], *instead, *items[index + 1 :]]


# --- expressions -------------------------------------------------------------------------------------------


def another_operator(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        yield changed(node, op=ARITHMETIC[type(node.op)]())


def dropped_operand(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.BinOp):
        yield node.left
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            values = exchanged(node.values, index)
            yield changed(node, values=values) if len(values) > 1 else values[0]


def another_comparison(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            yield changed(node, ops=exchanged(node.ops, index, COMPARISONS[type(op)]()))


def and_for_or(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def dropped_condition(node: ast.AST) -> Iterator[Replacement]:
    """Always or never, in the place of a condition; a loop that never ends is no small fault."""
    if isinstance(node, (ast.If, ast.IfExp)):
        yield changed(node, test=ast.Constant(True))
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield changed(node, test=ast.Constant(False))
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for index, generator in enumerate(node.generators):
            for condition in range(len(generator.ifs)):
                free = changed(generator, ifs=exchanged(generator.ifs, condition))
                yield changed(node, generators=exchanged(node.generators, index, free))


def another_constant(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            others = (value * 2, value // 2) if abs(value) > LARGE else (value + 1, value - 1)
            yield from map(ast.Constant, others)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value * 2 if value else 1.0)
        case ast.Constant(value=str(value)):
            yield ast.Constant(f"{value}_")


def another_index(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Subscript(slice=ast.Slice() as part):
            for bound in ("lower", "upper", "step"):
                if getattr(part, bound) is not None:
                    yield changed(node, slice=changed(part, **{bound: None}))
        case ast.Subscript(slice=index) if not isinstance(index, (ast.Constant, ast.Tuple)):
            yield changed(node, slice=ast.BinOp(index, ast.Sub(), ast.Constant(1)))


def another_range(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Call(func=ast.Name(id="range"), args=args):
            for index, bound in enumerate(args):
                if isinstance(bound, ast.Constant):
                    continue  # another constant is another operator's
                for op in (ast.Add(), ast.Sub()):
                    yield changed(node, args=exchanged(args, index, ast.BinOp(bound, op, ast.Constant(1))))


def confused_name(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in CONFUSED_WITH:
            yield changed(node, id=CONFUSED_WITH[name])
        case ast.Attribute(attr=name) if name in CONFUSED_WITH:
            yield changed(node, attr=CONFUSED_WITH[name])
        case ast.Call(keywords=keywords):
            for index, keyword in enumerate(keywords):
                if keyword.arg in GLOBAL:
                    other = changed(keyword, arg=GLOBAL[keyword.arg])
                    yield changed(node, keywords=exchanged(keywords, index, other))


def dropped_argument(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg != "strict":
                yield changed(node, keywords=exchanged(node.keywords, index))
        if node.args and isinstance(node.args[-1], ast.Name) and node.args[-1].id == "group":
            yield changed(node, args=node.args[:-1])


def dropped_element(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.List) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        for index in range(len(node.elts)):
            yield changed(node, elts=exchanged(node.elts, index))


def swapped_arguments(node: ast.AST) -> Iterator[Replacement]:
    if isinstance(node, ast.Call) and len(node.args) > 1 and _called(node) not in ("max", "min", "range"):
        first, second, *others = node.args
        yield changed(node, args=[second, first, *others])


def dropped_call(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            yield argument
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[], keywords=[]) if name in METHODS:
            yield value


# --- statements --------------------------------------------------------------------------------------------


def dropped_statement(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.Return(value=value) if value is not None:
            yield ast.Return(ast.Constant(None))
        case ast.Assign(targets=targets) if not any(isinstance(t, (ast.Name, ast.Tuple)) for t in targets):
            yield ast.Pass()
        case ast.Expr() | ast.AugAssign() | ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Delete() | ast.Assert():
            yield ast.Pass()


def dropped_context(node: ast.AST) -> Iterator[Replacement]:
    match node:
        case ast.With(items=items, body=body) if not any(item.optional_vars for item in items):
            yield body
        case ast.Try(finalbody=[_, *_], handlers=[]):
            yield node.body
        case ast.FunctionDef(decorator_list=decorators):
            for index in range(len(decorators)):
                yield changed(node, decorator_list=exchanged(decorators, index))


def doubled_statement(node: ast.AST) -> Iterator[Replacement]:
    """The ranks communicate twice."""
    match node:
        case ast.Expr(value=value) | ast.Assign(value=value) if any(map(_communicates, ast.walk(value))):
            yield [node, node]


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def _communicates(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="dist"), attr=name)):
            return name not in NO_MESSAGE
    return False


def swapped_statements(first: ast.stmt, second: ast.stmt) -> list[ast.stmt] | None:
    """Two calls in a row, in the other order."""
    calls = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) for s in (first, second))
    return [second, first] if calls else None


OPERATORS: tuple[Callable[[ast.AST], Iterator[Replacement]], ...] = (
    another_operator,
    dropped_operand,
    another_comparison,
    and_for_or,
    dropped_condition,
    another_constant,
    another_index,
    another_range,
    confused_name,
    dropped_argument,
    dropped_element,
    swapped_arguments,
    dropped_call,
    dropped_statement,
    dropped_context,
    doubled_statement,
)
