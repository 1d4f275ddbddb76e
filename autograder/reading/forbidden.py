"""What an exercise forbids, found in the text of the code that is checked, before any of it runs.

`judge` asks; the lists are those of the exercises' texts. Only what the checked name leads to counts: a
notebook may compare itself with all the libraries there are. Code that keeps its reader from seeing what it
calls is refused; who gets past this still has the trace and the sandbox before them.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from autograder.policy import Problem
from autograder.reading.names import Dotted, Reference
from autograder.reading.statements import (
    MAX_ATTRIBUTES,
    MAX_REFERENCES,
    Mention,
    Statement,
    Unreadable,
    statements,
    work,
)

if TYPE_CHECKING:
    from autograder.student import Cell

MAX_CELLS = 4000  # of a notebook; the longest that people have written has a tenth
MAX_WORK = 1_000_000  # characters, as `statements` counts them: seconds

# What the text of each exercise forbids.
BENCHMARKING = ("fourranks",)
DATA_PARALLELISM = ("torch.nn.parallel", "torch.distributed.fsdp", "torch.distributed.algorithms")
SHARDED_DATA_PARALLELISM = ("torch.distributed.fsdp", "torch.distributed.optim", "torch.nn.parallel")
TENSOR_PARALLELISM = (
    "torch.distributed.tensor",
    "torch.distributed.nn",
    "torch.distributed._functional_collectives",
)
PIPELINE_PARALLELISM = ("torch.distributed.pipelining",)

# Where else torch 2.13 has the same.
ALSO = {
    "torch.nn.parallel": (
        "torch.nn.DataParallel",
        "torch.distributed.Reducer",
        "torch.distributed._composable",
    ),
    "torch.distributed.fsdp": ("torch.distributed._composable",),
    "torch.distributed.tensor": ("torch.distributed._tensor", "torch.distributed._shard"),
    "torch.distributed._functional_collectives": (
        "torch.distributed._functional_collectives_impl",
        "torch.distributed._symmetric_memory",
    ),
}

# Ways to call what no reader sees, by module; "object" stands for anything that has such an attribute.
_HIDING = {
    "builtins": "__import__ __loader__ __spec__ compile eval exec get_ipython globals",
    "gc": "get_objects get_referents get_referrers",
    "inspect": "currentframe getmodule stack trace",
    "object": "__builtins__ __closure__ __code__ __globals__ __subclasses__ f_back f_globals f_locals",
    "sys": "_current_frames _getframe meta_path modules setprofile settrace",
    "torch": "_C classes hub ops package utils.cpp_extension",
    "types": "CodeType FunctionType",
}
_WHOLLY_HIDING = "_ctypes code codeop ctypes imp importlib marshal pkgutil pydoc runpy"
_CONTENTS = {"__dict__", "__getattr__", "__getattribute__"}  # attributes by which a module gives all others
# Modules that others have as attributes: a path begins at the last of them.
_ELSEWHERE = {"builtins", "gc", "importlib", "inspect", "sys", "torch", "types"}
_PACKAGES = {"fourranks", "matplotlib", "numpy", "object", "torch", "tqdm", "typing_extensions"}
_GIVEN = {"__name__", "display", "get_ipython"}  # names that no cell defines and every notebook has


def _split(names: Sequence[str]) -> list[Dotted]:
    return [tuple(name.split(".")) for name in names]


_WAYS_TO_HIDE = _split([f"{module}.{name}" for module, names in _HIDING.items() for name in names.split()])
_WAYS_TO_HIDE += _split(_WHOLLY_HIDING.split())


class _Use(NamedTuple):
    """Something that the checked code uses; the path is empty if nothing of that name is known."""

    path: Dotted
    mention: Mention
    where: str = ""


def problem(name: str, cells: Sequence[Cell], forbidden: Sequence[str]) -> Problem | None:
    """What is wrong with the code that a name leads to, before all else a forbidden library.

    Args:
        name: what is checked, as the notebook calls it.
        cells: of the notebook, in the order in which they were run.
        forbidden: one of the lists above.
    """
    listed = _split([each for public in forbidden for each in (public, *ALSO.get(public, ()))])
    hidden = ""
    try:
        notebook = _Notebook(cells)
        if not notebook.defines(name):
            return Problem("not defined", f"a cell that defines {name}", "none that ran")
        for use in notebook.uses(name):
            if _is_part(use.path, listed):
                got = ".".join(use.path) + use.where
                return Problem("forbidden library", f"nothing of {', '.join(forbidden)}", got)
            hidden = hidden or _hidden(use, listed)
    except Unreadable as unreadable:
        return Problem("hidden code", "cells that can be read", str(unreadable))
    return Problem("hidden code", "code that calls things by their names", hidden) if hidden else None


def _hidden(use: _Use, listed: Sequence[Dotted]) -> str:
    """What keeps a reader from seeing what is called; "" if nothing does."""
    path, mention, where = use
    if not path:
        return f"{mention.reference.root}{where}, which no cell defines"
    if path[0] not in sys.stdlib_module_names | _PACKAGES and path[:2] != ("autograder", "unsharded"):
        return f"{'.'.join(path)}{where}, whose code is not here to be read"
    if _is_part(path, _WAYS_TO_HIDE):
        return ".".join(path[1:] if path[0] in ("builtins", "object") else path) + where
    if mention.handed_on and any(module[: len(path)] == path for module in (*_WAYS_TO_HIDE, *listed)):
        return f"all of {'.'.join(path)}{where}, as a value"
    return ""


def _is_part(path: Dotted, modules: Sequence[Dotted]) -> bool:
    return any(path[: len(module)] == module for module in modules)


@dataclass(eq=False)
class _Version:
    """What may have bound a name, or changed what it stands for, since it surely had a new value."""

    runs: list[_Run] = field(default_factory=list)
    aliases: list[tuple[Reference, _Run]] = field(default_factory=list)
    is_module: bool = True  # as far as one can see


@dataclass(eq=False)
class _Run:
    """A statement that was run; for the names that it looked up at once, what they stood for then."""

    statement: Statement
    before: dict[str, _Version]


class _Notebook:
    """The statements of a notebook's cells, by the names that they bind.

    Raises:
        Unreadable: when nobody can read a cell, or could follow its names; says which.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        if len(cells) > MAX_CELLS or sum(work(cell.text) for cell in cells) > MAX_WORK:
            raise Unreadable("too many of them")
        self._bound: dict[str, _Version] = {}
        self._later: dict[str, _Version] = {}
        self._stars: dict[Dotted, None] = {}
        for cell in cells:
            for statement in _read(cell):
                self._add(statement, cell.finished is not False)

    def _add(self, statement: Statement, finished: bool) -> None:
        roots = {mention.reference.root for mention in statement.mentions if not mention.later}
        run = _Run(statement, {root: self._bound[root] for root in roots & self._bound.keys()})
        self._stars |= dict.fromkeys(statement.stars)
        if len(self._stars) > MAX_REFERENCES:
            raise Unreadable("one with import *")
        for name in {binding.name for binding in statement.bindings if binding.certain and finished}:
            self._bound[name] = _Version()
        for binding in statement.bindings:
            versions = self._later if binding.later else self._bound
            version = versions.get(binding.name, _Version())
            if binding.by_method and version.is_module:
                continue
            versions[binding.name] = version
            version.runs.append(run)
            version.aliases += [(binding.alias, run)] if binding.alias else []
            version.is_module &= bool(binding.alias)

    def defines(self, name: str) -> bool:
        """Whether a name stands for anything."""
        return bool(self._versions(name, None) or self._unbound(name))

    def uses(self, name: str) -> Iterator[_Use]:
        """All that is used by what binds this name, by what that leads to, and so on."""
        yield from self._resolved(Mention(Reference(name, ()), 0), None)
        pending = [(name, version) for version in self._versions(name, None)]
        versions: set[_Version] = set()
        runs: set[_Run] = set()
        for name, version in pending:  # which grows
            new = [] if version in versions else [run for run in version.runs if run not in runs]
            versions.add(version)
            runs.update(new)
            for run, mention in [(each, mention) for each in new for mention in each.statement.mentions]:
                yield from self._resolved(mention, run, f" in line {mention.line} of the cell with {name}")
                root = mention.reference.root
                following = self._versions(root, run) if root else ()
                pending += [(root, each) for each in following if each not in versions]

    def _versions(self, name: str, run: _Run | None) -> list[_Version]:
        """What may have bound a name that is used in this statement."""
        before = run.before if run else {}
        found = [versions[name] for versions in (before, self._bound, self._later) if name in versions]
        return list(dict.fromkeys(found))

    def _resolved(self, mention: Mention, run: _Run | None, where: str = "") -> Iterator[_Use]:
        paths = self._paths(mention.reference, run)
        if not paths and mention.required and not self._versions(mention.reference.root, run):
            yield _Use((), mention, where)
        for path in paths:
            contents = next((at for at, part in enumerate(path) if part in _CONTENTS), 0)
            if contents and path[0] != "object":
                path, mention = path[:contents], replace(mention, handed_on=True)
            start = max((at for at, part in enumerate(path) if part in _ELSEWHERE), default=0)
            yield _Use(path[start:], mention, where)

    def _paths(self, reference: Reference, run: _Run | None) -> list[Dotted]:
        """What a reference may stand for, as paths from a module."""
        found: list[Dotted] = []
        pending = [(reference, run)]
        for (root, path), run in pending:  # which grows
            versions = self._versions(root, run) if root else []
            if root is None:
                found.append(path)
            elif not versions:
                found += [(*module, root, *path) for module in self._unbound(root)]
            for alias, origin in (pair for version in versions for pair in version.aliases):
                following = (Reference(alias.root, alias.path + path), origin)
                if following not in pending and len(following[0].path) <= MAX_ATTRIBUTES:
                    pending.append(following)
                if len(pending) > MAX_REFERENCES:
                    raise Unreadable(f"one with {root}")
        return found

    def _unbound(self, name: str) -> list[Dotted]:
        """The modules that a name which no cell binds may come from."""
        return [("builtins",)] if name in _GIVEN or hasattr(builtins, name) else list(self._stars)


def _read(cell: Cell) -> Sequence[Statement]:
    """The statements of a cell; none if it has not run, as it is no Python."""
    with contextlib.suppress(Unreadable):
        found = statements(cell.text)
        if found is not None or not cell.finished:
            return found or ()
    raise Unreadable(f"one that begins with {cell.text.strip()[:50].partition(chr(10))[0]!r}")
