"""Makes the notebooks that nbgrader reads, where there are none yet: nbgrader_config.py calls it.

`build` brings all of them up to date.
"""

import os
import sys
from pathlib import Path

import nbformat

from autograder.notebooks.source import SourceError, read


def place_missing(course: Path) -> None:
    """Make the notebook of each exercise that has only its text; say which text has a mistake."""
    for text in sorted(course.glob("source/[0-9][0-9]_*/exercise.py")):
        built = text.with_suffix(".ipynb")
        if not built.exists():
            try:
                _write(text, built)
            except (SourceError, OSError) as error:
                print(f"{built} could not be made: {error}", file=sys.stderr)


def _write(text: Path, built: Path) -> None:
    """Write it as `build` does, and as old as its text, until someone edits it."""
    partial = built.with_name(f".{built.name}.{os.getpid()}")
    nbformat.write(read(text, f"source/{text.parent.name}/{text.name}"), partial)
    os.utime(partial, ns=(text.stat().st_atime_ns, text.stat().st_mtime_ns))
    partial.replace(built)
