"""What the text of a notebook's cells says: the names that each statement binds, and those that it uses.

Text is read here, never run. `forbidden` puts statements together; what a name stands for is said as far as
imports and plain assignments tell.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from IPython.core.inputtransformer2 import TransformerManager

from autograder.reading.names import (
    Dotted,
    Names,
    Reference,
    Scope,
    Visitor,
    certain_names,
    chain,
    head,
    imports,
    look_up,
)

# A submission may be made to be read for ever.
MAX_REFERENCES = 100  # by which one name is followed to what it stands for
MAX_ATTRIBUTES = 12  # that are followed behind it

# Magics that run the rest of their cell, or of their line, as if they were not there.
_TRANSPARENT = re.compile(r"\A(\s*)%%(?:time|timeit|capture|prun)\b[^\n]*|^([ \t]*)%time[ \t]+", re.MULTILINE)
_AT_ONCE = (ast.ListComp, ast.SetComp, ast.DictComp)  # scopes that run where they are written
_MAGIC = re.compile(r"^[ \t]*[%!?]|=[ \t]*[%!]|\?[ \t]*$", re.MULTILINE)


class Unreadable(Exception):
    """Code that Python might run, and that is too large or too entangled to be read."""


@dataclass(frozen=True)
class Mention:
    """A name that a statement uses, and the attributes that it takes of it.

    Attributes:
        handed_on: whether the value itself goes elsewhere, and not into a name that can be followed.
        required: whether it can only be a name that a cell, or Python, defines.
        later: whether it is looked up when a function is called.
    """

    reference: Reference
    line: int
    handed_on: bool = False
    required: bool = True
    later: bool = False


@dataclass(frozen=True)
class Binding:
    """A global name that a statement gives a value, or whose value it changes.

    Attributes:
        alias: what it stands for, where that can be said.
        certain: whether the name stands for nothing else when the statement has been run.
        later: whether it happens when a function is called.
        by_method: whether all that is seen is the call of a method.
    """

    name: str
    alias: Reference | None = None
    certain: bool = False
    later: bool = False
    by_method: bool = False


@dataclass(eq=False)
class Statement:
    """A statement of a cell, with all that is inside it."""

    mentions: list[Mention] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    stars: list[Dotted] = field(default_factory=list)  # modules of which it imports everything


def work(cell: str) -> int:
    """Characters that have to be looked at: for each line with magics IPython reads the cell once more."""
    return len(cell) * (1 + len(_MAGIC.findall(cell)))


@lru_cache(maxsize=512)
def statements(cell: str) -> Sequence[Statement] | None:
    """The statements of a cell; None when it is no Python, as a kernel reads it.

    Raises:
        Unreadable: when nobody can say.
    """
    try:
        return tuple(_Reader(node).statement for node in _parsed(cell).body)
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError, RuntimeError):
        raise Unreadable from None


def _parsed(cell: str) -> ast.Module:
    text = _TRANSPARENT.sub(r"\1\2", cell)
    blank = re.match(r"(?:[ \t]*\n)*", text)[0].count("\n")  # IPython drops them, and lines are counted
    text = "\n" * blank + TransformerManager().transform_cell(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(
            text, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )


class _Reader(Visitor):
    """Reads one statement of a cell, whose names are global, with all the scopes in it."""

    def __init__(self, node: ast.stmt) -> None:
        self.statement = Statement()
        self._scopes: list[Scope] = []
        names, certain = Names(), certain_names(node)
        names.visit(node)
        for name, aliases in names.found.items():
            self._bind(name, aliases, certain=name in certain)
        self.visit(node)

    def _bind(self, name: str, aliases: Iterable[Reference | None] = (None,), **how: bool) -> None:
        self.statement.bindings += [Binding(name, alias, **how) for alias in aliases]

    # --- what is used

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._mention(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._change(node)
        self._take_apart(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._change(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name("setattr" | "delattr") if node.args:
                self._change(node.args[0])
            case ast.Attribute(owner) if not self._scopes:
                self._change(owner, by_method=True)
        if look_up(node):
            self._take_apart(node)
        else:
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        self._assign([node.target], node.value)

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr | None) -> None:
        if chain(value) and all(map(self._can_be_followed, targets)):
            self._take_apart(value, handed_on=False)
        elif value is not None:
            self.visit(value)
        self.visit_all(targets)

    def _can_be_followed(self, target: ast.expr) -> bool:
        """Whether it is a name of this scope, and not what others may see as an attribute."""
        if not isinstance(target, ast.Name):
            return False
        scope = self._scopes[-1] if self._scopes else None
        return scope is None or (scope.kind is not ast.ClassDef and target.id in scope.names)

    def _take_apart(self, node: ast.expr, handed_on: bool = True) -> None:
        """Note a name with attributes as one mention; of another expression the attributes alone."""
        is_chain = chain(node) is not None
        if is_chain:
            self._mention(node, handed_on)
        while found := look_up(node):
            value, attribute = found
            self._note(Reference(None, ("object", attribute)), node)
            if isinstance(node, ast.Call):
                self.visit_all(node.args[2:])
            node = value
        if not is_chain:
            self.visit(node)

    def _mention(self, node: ast.expr, handed_on: bool = True) -> None:
        name, path = chain(node)
        for (root, start), required in self._references(name):
            self._note(Reference(root, start + path), node, handed_on, required)

    def _note(
        self, reference: Reference, node: ast.AST, handed_on: bool = False, required: bool = True
    ) -> None:
        self.statement.mentions.append(Mention(reference, node.lineno, handed_on, required, self._is_later()))

    def _is_later(self) -> bool:
        return any(scope.kind not in (ast.ClassDef, *_AT_ONCE) for scope in self._scopes)

    def _references(self, name: str) -> list[tuple[Reference, bool]]:
        """What a name may stand for here, and whether it has to be known."""
        found: list[tuple[Reference, bool]] = []
        pending: list[tuple[str, int, Dotted]] = [(name, len(self._scopes), ())]
        for name, depth, path in pending:  # which grows
            scopes, may_be_global = self._owners(name, depth)
            if may_be_global:
                found.append((Reference(name, path), len(pending) == 1 and not scopes))
            for inner in scopes:
                for alias in filter(None, self._scopes[inner - 1].names[name]):
                    following = (alias.root, inner, alias.path + path)
                    if alias.root is None:
                        found.append((Reference(None, alias.path + path), True))
                    elif following not in pending and len(following[2]) <= MAX_ATTRIBUTES:
                        pending.append(following)
                    if len(pending) > MAX_REFERENCES:
                        raise Unreadable
        return found

    def _owners(self, name: str, depth: int) -> tuple[list[int], bool]:
        """Which of the innermost so many scopes a name may belong to, and whether it may be global."""
        scopes = []
        for inner in range(depth, 0, -1):
            scope = self._scopes[inner - 1]
            if name in scope.declared_global:
                break
            if name in scope.names and (inner == depth or scope.kind is not ast.ClassDef):
                scopes.append(inner)
                if scope.kind is not ast.ClassDef:  # a class looks outside for what it has not bound yet
                    return scopes, False
        return scopes, True

    # --- what is bound or changed from within

    def _change(self, node: ast.expr, **how: bool) -> None:
        """Something is stored in what a name stands for."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name):
            for (root, _), _ in self._references(node.id):
                if root is not None:
                    self._bind(root, later=self._is_later(), **how)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name, path, imported in imports(node):
            if name == "*":
                self.statement.stars.append(path[:-1])
            elif self._scopes:  # a cell may import what it likes, as long as what is checked does not use it
                self._note(Reference(None, imported), node)

    visit_ImportFrom = visit_Import

    # --- what has a scope

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += filter(None, [arguments.vararg, arguments.kwarg])
        self.visit_all(head(node))
        self._inside(
            node,
            [each.arg for each in parameters],
            [node.body] if isinstance(node, ast.Lambda) else node.body,
        )

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all(head(node))
        self._inside(node, (), node.body)

    def _inside(self, node: ast.AST, names: Sequence[str], body: Sequence[ast.AST]) -> None:
        own = Names()
        for name in (*names, *(each.name for each in getattr(node, "type_params", ()))):
            own.found[name][None] = None
        for inner in body:
            own.visit(inner)
        for name in own.declared_global & own.found.keys():
            self._bind(name, own.found[name], later=True)
        self._within(own.scope(type(node)), body)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        first, *others = node.generators
        self.visit(first.iter)  # which belongs to what is around it
        own = Names()
        for generator in node.generators:
            own.visit(generator.target)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._within(own.scope(type(node)), [first.target, *first.ifs, *others, *results])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _within(self, scope: Scope, body: Sequence[ast.AST]) -> None:
        self._scopes.append(scope)
        self.visit_all(body)
        self._scopes.pop()
