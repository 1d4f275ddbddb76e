"""The code that a test cell's outcome depends on, besides the student's: a fingerprint that changes with it.

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
# The code that runs them, outside of the sandbox and inside.
ALWAYS = ("autograder.grading.referee", "autograder.inside.__main__")


@cache
def fingerprint(source: str) -> str:
    """Return the digest of the checks that a test cell names, all that they use, and torch's version."""
    defined_in = _defined_in()
    files = _reached({*ALWAYS, *(defined_in[name] for name in checks(source) if name in defined_in)})
    digest = hashlib.sha256(version("torch").encode())
    for path in sorted(files):
        digest.update(_digest(path))
    return digest.hexdigest()[:32]


@cache
def everything() -> str:
    """Return the digest of all code of the course: where it is the same, so is every fingerprint."""
    digest = hashlib.sha256()
    for path in sorted(path for room in ("autograder", "fourranks") for path in (ROOT / room).rglob("*.py")):
        digest.update(_digest(path))
    return digest.hexdigest()[:16]


def checks(source: str) -> set[str]:
    """Find the checks that a test cell uses: f, where it says check.f."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "check"
    }


@cache
def _lists() -> frozenset[Path]:
    """List the files that only name the checks of a topic."""
    return frozenset((ROOT / "autograder" / "topics").glob("*/__init__.py"))


@cache
def _defined_in() -> dict[str, str]:
    """Map each check to the module that defines it."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in _lists()]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _reached(modules: set[str]) -> set[Path]:
    """Find the files of these modules and of all that they import; `fourranks` is taken whole."""
    reached = set((ROOT / "fourranks").rglob("*.py"))
    waiting = {file for module in modules if (file := _file(module))}
    while waiting:
        path = waiting.pop()
        reached.add(path)
        waiting |= set(_imports(path)) - reached
    return reached


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """List the files of `autograder` that a file imports, or starts as processes by their names."""
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
    """Find the file of a module of `autograder`; None for any other module."""
    parts = module.split(".")
    if parts[0] != "autograder" or not all(map(str.isidentifier, parts)):
        return None
    path = ROOT.joinpath(*parts)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _digest(path: Path) -> bytes:
    """Return the digest of a file as this process found it first: of the code that it imported."""
    content = f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes()
    return hashlib.sha256(content).digest()
