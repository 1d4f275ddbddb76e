"""Names in a syntax tree: what binds them, where they belong, and what they stand for by imports.

For `reading`, which puts it together for whole statements.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Dotted = tuple[str, ...]
Aliases = dict["Reference | None", None]  # in their order; None is something else


class Reference(NamedTuple):
    """A path that begins with an imported module; with a root, the attributes taken of that global name."""

    root: str | None
    path: Dotted


def look_up(node: ast.expr | None) -> tuple[ast.expr, str] | None:
    """What an attribute is taken of, and its name: `a.b`, or `getattr(a, "b")`."""
    match node:
        case ast.Attribute(value, attribute):
            return value, attribute
        case ast.Call(ast.Name("getattr" | "hasattr"), [value, ast.Constant(str(attribute)), *_]):
            return value, attribute
    return None


def chain(node: ast.expr | None) -> tuple[str, Dotted] | None:
    """A name and the attributes behind it; None for anything else."""
    path: Dotted = ()
    while found := look_up(node):
        node, attribute = found
        path = (attribute, *path)
    return (node.id, path) if isinstance(node, ast.Name) else None


def imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Dotted, Dotted]]:
    """For each name that is imported: the name that is bound, what it stands for, what is imported."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            module = [*"." * node.level, *(node.module or "").split(".")]
            path = (*filter(None, module), alias.name)
            yield alias.asname or alias.name, path, path
        else:
            path = tuple(alias.name.split("."))
            yield alias.asname or path[0], path if alias.asname else path[:1], path


@dataclass
class Scope:
    """The names that belong to a function, a class or a comprehension, and what they may stand for."""

    kind: type[ast.AST]
    names: dict[str, Aliases]
    declared_global: set[str] = field(default_factory=set)


class Visitor(ast.NodeVisitor):
    """Visits the nodes of a syntax tree."""

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        """Visit these nodes, in this order."""
        for node in nodes:
            self.visit(node)


class Names(Visitor):
    """The names that a block of code binds, but for those that belong to the functions and classes in it."""

    def __init__(self) -> None:
        self.found: dict[str, Aliases] = defaultdict(dict)
        self.declared_global: set[str] = set()
        self._outer: set[str] = set()

    def scope(self, kind: type[ast.AST]) -> Scope:
        others = self._outer | self.declared_global
        own = {name: aliases for name, aliases in self.found.items() if name not in others}
        return Scope(kind, own, self.declared_global)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.found[node.id][None] = None

    def visit_Assign(self, node: ast.Assign) -> None:
        alias = chain(node.value)
        for target in node.targets:
            if alias and isinstance(target, ast.Name):
                self.found[target.id][Reference(*alias)] = None
            else:
                self.visit(target)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit_Assign(ast.Assign([node.target], node.value or ast.Constant(None)))

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, path, _ in imports(node):
            if name != "*":
                self.found[name][Reference(None, path)] = None

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.found[node.name][None] = None
        self.visit_all(head(node))

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all(head(node))

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit_all([node.iter, *node.ifs])  # targets are its own, `:=` belongs to what is around it

    def visit_ExceptHandler(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.found[node.name][None] = None
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_ExceptHandler

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.found[node.rest][None] = None
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.declared_global.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._outer.update(node.names)


def head(node: ast.AST) -> list[ast.AST]:
    """What of a function or class belongs to the scope around it."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    if isinstance(node, ast.Lambda):
        return [node.args]
    return [*node.decorator_list, node.args, *filter(None, [node.returns])]


def certain_names(node: ast.stmt) -> set[str]:
    """The names that have a new value whenever the statement has been run."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {name for name, _, _ in imports(node)}
        case ast.Assign(targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(ast.Name(name), _, value) if value:
            return {name}
    return set()
