"""A step: run a notebook from top to bottom, and keep it with its outputs, also those before an error."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

from autograder.notebooks.execute import ExecutionError, execute

CELL_TIMEOUT = 600.0  # seconds: ranks that share a GPU take turns on it


def main(source: str, target: str) -> int:
    """Run the notebook `source` where it lies, and write it to `target`; returns the exit code."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":  # the outputs that it was committed with are no evidence
            cell.outputs, cell.execution_count = [], None
    try:
        execute(notebook, Path(source).parent, CELL_TIMEOUT)
    except ExecutionError as error:
        print(error)
        return 1
    finally:
        nbformat.write(notebook, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
