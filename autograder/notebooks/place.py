"""Makes the notebooks that nbgrader reads, where there are none yet: nbgrader_config.py calls it.

`build` brings all of them up to date.
"""

import sys
from pathlib import Path

import nbformat

from autograder.kit import whole_file
from autograder.notebooks.source import SourceError, read


def place_missing(course: Path) -> None:
    """Make the notebook of each exercise that has only its text; say which text has a mistake."""
    for text in sorted(course.glob("source/[0-9][0-9]_*/exercise.py")):
        built = text.with_suffix(".ipynb")
        if not built.exists():
            try:
                notebook = read(text, f"source/{text.parent.name}/{text.name}")
                content = nbformat.writes(notebook) + "\n"
                whole_file.write(built, content.encode(), as_old_as=text)  # until someone edits it
            except (SourceError, OSError) as error:
                print(f"{built} could not be made: {error}", file=sys.stderr)
