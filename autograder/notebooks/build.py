"""Makes lectures/, exercises/, solutions/ and the start page from source/, and says if they are out of date.

The command `autograder build` calls `build` and `check`. Both make the course in a temporary folder, complete
but for outputs, and compare it with what is there: a second build finds nothing to do, a check runs nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode, from_dict

from autograder.notebooks.compare import code_cells, difference, has_outputs, read, was_run
from autograder.notebooks.execute import ExecutionError, execute
from autograder.notebooks.metadata import BLANK, FOLDED
from autograder.notebooks.stage import START_PAGE, stage

FOLDERS = ("exercises", "lectures", "solutions")
EXECUTED = ("lectures", "solutions")
NOT_OURS = {".ipynb_checkpoints", "__pycache__"}
LARGE = 1_500_000  # bytes; up to here a notebook opens at once, in JupyterLab and on a forge


class BuildError(Exception):
    """One file cannot be brought up to date; the text says why and what to do."""


def check(course: Path) -> list[str]:
    """Every built file that is not what source/ makes, as `path: reason`; outputs are not compared.

    Raises:
        SourceError: source/ has a mistake.
    """
    with _staged(course) as staged:
        return [f"{path}: {reason}" for path, reason in _out_of_date(staged, course)]


def build(course: Path) -> list[str]:
    """Bring every built file up to date; returns those that stay as they were, as `path: reason`.

    Raises:
        SourceError: source/ has a mistake; nothing was changed.
    """
    problems = []
    with _staged(course) as staged:
        updates = [(path, _update) for path, _ in _out_of_date(staged, course)]
        updates += [(path.relative_to(staged), _place) for path in sorted(staged.glob("source/*/*.ipynb"))]
        for path, update in updates:
            try:
                update(path, staged, course)
            except BuildError as error:
                problems.append(f"{path}: {error}")
    return problems


@contextmanager
def _staged(course: Path) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        stage(course, Path(folder))
        yield Path(folder)


def _out_of_date(staged: Path, course: Path) -> list[tuple[Path, str]]:
    """The files to update, relative to the course, and why; the start page comes after what it links to."""
    paths = set()
    for root in (staged, course):
        for folder in FOLDERS:
            files = (path.relative_to(root) for path in (root / folder).rglob("*") if path.is_file())
            paths.update(path for path in files if not NOT_OURS.intersection(path.parts))
    ordered = [*sorted(paths), Path(START_PAGE)]
    reasons = [
        (path, difference(staged / path, course / path, path.parts[0] in EXECUTED)) for path in ordered
    ]
    return [(path, reason) for path, reason in reasons if reason]


def _update(path: Path, staged: Path, course: Path) -> None:
    """Make the built file anew, or remove it if an earlier build made it and this one does not."""
    previous = read(course / path) if path.suffix == ".ipynb" else None
    if previous and path.parts[0] == "exercises" and has_outputs(previous):
        raise BuildError(
            "it holds outputs: someone works in it. Copy it elsewhere, git checkout it, and build again."
        )
    if not (staged / path).exists():
        _remove(course / path, previous)
    elif path.suffix == ".ipynb" and path.parts[0] in EXECUTED:
        _write(course / path, _executed(staged / path, previous, course))
    else:
        _write(course / path, (staged / path).read_bytes())
    print(f"{'made' if (course / path).exists() else 'removed'} {path}")


def _remove(built: Path, previous: NotebookNode | None) -> None:
    if previous is None or "fourranks" not in previous.metadata:
        raise BuildError("nothing in source/ makes it, and no build made it. Move it elsewhere.")
    built.unlink()


def _executed(staged: Path, previous: NotebookNode | None, course: Path) -> bytes:
    """The staged notebook with outputs: those of the previous one if only prose has changed since."""
    notebook = read(staged)
    source = notebook.metadata.fourranks.source
    if previous and was_run(previous) and _code(previous) == _code(notebook):
        for cell, old in zip(code_cells(notebook), code_cells(previous), strict=True):
            cell.outputs, cell.execution_count = old.outputs, old.execution_count
    else:
        print(f"running {source}", flush=True)
        try:
            execute(notebook, staged.parent)
        except ExecutionError as error:
            raise BuildError(f"{source}, {error}") from error
    _hide_first_lines(notebook)
    text = nbformat.writes(notebook) + "\n"
    if len(text) > LARGE:
        print(f"warning: {source} makes {len(text) / 1e6:.1f} MB; draw fewer or smaller figures")
    return text.replace(f"{course}/", "").encode()  # tracebacks and warnings name files of this machine


def _hide_first_lines(notebook: NotebookNode) -> None:
    for cell in code_cells(notebook):
        if FOLDED.items() <= cell.metadata.items() and cell.outputs and cell.outputs[0] != BLANK:
            cell.outputs.insert(0, from_dict(BLANK))


def _code(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in code_cells(notebook)]


def _place(path: Path, staged: Path, course: Path) -> None:
    """Put the notebook that nbgrader's own commands read beside its text; it is not committed."""
    text, built = course / path.with_suffix(".py"), course / path
    wanted = (staged / path).read_bytes()
    if built.exists() and built.read_bytes() == wanted:
        return
    if built.exists() and built.stat().st_mtime > text.stat().st_mtime:
        raise BuildError(
            f"it was edited, but the course is built from {text.name}. To keep the edits, run "
            f"`.venv/bin/jupytext --to py:percent {path}`; to drop them, remove it. Then build again."
        )
    _write(built, wanted)
    # As old as its text, until someone edits it.
    os.utime(built, ns=(text.stat().st_atime_ns, text.stat().st_mtime_ns))


def _write(path: Path, content: bytes) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
