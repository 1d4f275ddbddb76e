"""Says how a built file differs from what source/ makes; `build` calls it. Outputs never count."""

from itertools import zip_longest
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

SKIPPED = "skip-execution"  # the tag of cells that nbclient leaves out


def difference(wanted: Path, built: Path, executed: bool) -> str | None:
    """Say why the file `built` is not what source/ makes, which is at `wanted`; None when it is.

    A notebook that is built with its outputs (`executed`) may hold any, and must have been run.
    """
    if not wanted.exists():
        return "nothing in source/ makes it"
    if not built.exists():
        return "it is missing"
    if wanted.suffix == ".ipynb":
        return _notebook_difference(wanted, built, executed)
    return None if wanted.read_bytes() == built.read_bytes() else "it was edited"


def _notebook_difference(wanted_path: Path, built_path: Path, executed: bool) -> str | None:
    wanted, built = nbformat.read(wanted_path, as_version=4), read(built_path)
    if built is None:
        return "it is not a notebook"
    if built.metadata.get("fourranks") != wanted.metadata.fourranks:
        return f"{wanted.metadata.fourranks.source} has changed since it was built"
    if _lasting(built.metadata) != _lasting(wanted.metadata):
        return "its metadata was edited"
    for wanted_cell, built_cell in zip_longest(wanted.cells, built.cells):
        if _without_outputs(wanted_cell) != _without_outputs(built_cell):
            return f"its cell {(built_cell or wanted_cell).id} was edited"
    if executed:
        return None if was_run(built) else "it was not run to its end"
    return "it holds outputs" if has_outputs(built) else None


def read(path: Path) -> NotebookNode | None:
    """Read the notebook at `path`; None if there is none that can be read."""
    try:
        return nbformat.read(path, as_version=4)
    except (FileNotFoundError, ValueError):
        return None


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that run: those with code in them, but for those that a reader has to run."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source]
    return [cell for cell in code if SKIPPED not in cell.metadata.get("tags", [])]


def was_run(notebook: NotebookNode) -> bool:
    """Tell whether all its code has been run."""
    return all(cell.execution_count for cell in code_cells(notebook))


def has_outputs(notebook: NotebookNode) -> bool:
    """Tell whether any of its code has been run and left something."""
    return any(cell.outputs or cell.execution_count for cell in code_cells(notebook))


def _lasting(metadata: NotebookNode) -> dict[str, Any]:
    """Leave out what JupyterLab writes when it opens a notebook: the versions of this machine."""
    return {key: value for key, value in metadata.items() if key != "language_info"}


def _without_outputs(cell: NotebookNode | None) -> dict[str, Any] | None:
    return cell and {key: value for key, value in cell.items() if key not in ("outputs", "execution_count")}
