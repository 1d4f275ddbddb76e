"""What code the outcome of a test cell depends on, besides the student's: a fingerprint that changes with it.

`records` keeps it with each outcome. It is found by reading import statements; nothing is imported.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKS = "autograder.check"  # all checks under one name: a test cell depends on those that it names
# What runs them, outside of the sandbox and inside.
ALWAYS = ("autograder.grading.referee", "autograder.inside.broker")


@cache
def fingerprint(source: str) -> str:
    """Of the checks that a test cell with this source names, of all that they use, and of torch's version."""
    defined_in = _defined_in()
    files = _reached({*ALWAYS, *(defined_in[name] for name in checks(source) if name in defined_in)})
    digest = hashlib.sha256(version("torch").encode())
    for path in sorted(files):
        digest.update(_digest(path))
    return digest.hexdigest()[:32]


def checks(source: str) -> set[str]:
    """The names of the checks that a test cell uses: f, where it says check.f."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "check"
    }


@cache
def _lists() -> frozenset[Path]:
    """The files that only name the checks of a topic."""
    return frozenset((ROOT / "autograder" / "topics").glob("*/__init__.py"))


@cache
def _defined_in() -> dict[str, str]:
    """The module that defines each check."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in _lists()]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def _reached(modules: set[str]) -> set[Path]:
    """The files of these modules and of all that they import; `fourranks`, which all use, is taken whole."""
    reached = set((ROOT / "fourranks").rglob("*.py"))
    waiting = {_file(module) for module in modules}
    while waiting:
        path = waiting.pop()
        reached.add(path)
        waiting |= set(_imports(path)) - reached
    return reached


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """The files of `autograder` that a file imports, or starts as a process of their own by their name."""
    names = set(_names(ast.parse(path.read_text(encoding="utf-8")))) - {CHECKS}
    return tuple(file for name in names if (file := _file(name)) and file not in _lists())


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _file(module: str) -> Path | None:
    """Where a module of `autograder` is; None if it is none."""
    parts = module.split(".")
    if parts[0] != "autograder" or not all(map(str.isidentifier, parts)):
        return None
    path = ROOT.joinpath(*parts)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _digest(path: Path) -> bytes:
    """Of a file as this process found it first: the code that it imported."""
    content = f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes()
    return hashlib.sha256(content).digest()
