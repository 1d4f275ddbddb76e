"""Makes a program for torchrun of a cell: `%%ranks --save-script train.py` calls it before the cell runs.

The program is plain torch. The names that a rank has from the start stand at its top. A cell that takes names
from other cells, or from a notebook, is refused with a list of them.
"""

from __future__ import annotations

import ast
import builtins
import shlex
import symtable
from collections.abc import Iterator
from pathlib import Path

from .protocol.messages import RANK_NAMES

_OF_MODULES = ("__file__", "__name__", "__doc__")
_PROLOGUE = '''\
"""Start it with torchrun, for instance: torchrun --standalone --nproc-per-node {world_size} {name}"""

import os

import torch
import torch.distributed as dist

has_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if has_gpu else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

'''
_EPILOGUE = "\ndist.destroy_process_group()\n"


class ScriptError(ValueError):
    """A cell that cannot stand by itself; the message says which names or lines it is about."""


def as_script(cell: str, name: str, world_size: int = 4) -> str:
    """Return the text of a program that does what the cell does on each rank.

    A cell that calls `init_process_group` itself is such a program already, and stays as it is.

    Args:
        cell: its source.
        name: of the program's file.
        world_size: ranks that the notebook has.

    Raises:
        ScriptError: it uses IPython's syntax, this package, or names that other cells define.
    """
    tree = _parsed(cell)
    _require_no_course(tree)
    is_complete = any(_names(node) == "init_process_group" for node in ast.walk(tree))
    _require_own_names(cell, () if is_complete else RANK_NAMES)
    body = cell.strip("\n") + "\n"
    if is_complete:
        return body
    return _PROLOGUE.format(world_size=world_size, name=shlex.quote(name)) + body + _EPILOGUE


def save(cell: str, path: Path, world_size: int) -> None:
    """Write the program of a cell to a file.

    Raises:
        ScriptError: it cannot be made, or not be written there.
    """
    text = as_script(cell, path.name, world_size)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScriptError(f"{path} cannot be written: {error.strerror}; choose another place") from None


def _parsed(cell: str) -> ast.Module:
    """Parse the cell as Python, without what only IPython reads."""
    for number, line in enumerate(cell.splitlines(), 1):
        if line.lstrip().startswith(("%", "!", "?")) or line.rstrip().endswith("?"):
            raise ScriptError(
                f"line {number} of the cell is for IPython alone: {line.strip()}. Leave it out, or put it "
                "into a cell of its own"
            )
    try:
        return ast.parse(cell)
    except SyntaxError as error:
        raise ScriptError(f"line {error.lineno} of the cell is no Python: {error.msg}") from None


def _names(node: ast.AST) -> str:
    """Return the name that a call is made by, without what stands in front of it."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return getattr(function, "attr", getattr(function, "id", ""))


def _require_no_course(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(module.partition(".")[0] == "fourranks" for module in modules):
            raise ScriptError(
                f"line {node.lineno} imports fourranks, which the machines of a job need not have: "  # type: ignore[attr-defined]
                "leave it out, or copy what you use into the cell"
            )
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            raise ScriptError(f"line {node.lineno} must be a program's first: leave `__future__` out")


def _require_own_names(cell: str, provided: tuple[str, ...]) -> None:
    module = symtable.symtable(cell, "cell", "exec")
    tables = list(_all_tables(module))
    own = {symbol for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    made_global = (
        symbol for table in tables for symbol in table.get_symbols() if symbol.is_declared_global()
    )
    own.update(symbol for symbol in made_global if symbol.is_assigned())
    known = {symbol.get_name() for symbol in own} | {*dir(builtins), *_OF_MODULES, *provided}
    missing = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if symbol.is_referenced()
        and (symbol.is_global() or table is module)
        and symbol.get_name() not in known
    }
    if missing:
        names = ", ".join(sorted(missing))
        raise ScriptError(
            f"the cell uses what it does not define: {names}. A program has no other cells: put the "
            "definitions into this one, imports included"
        )


def _all_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield a scope and all scopes in it."""
    yield table
    for inner in table.get_children():
        yield from _all_tables(inner)
