"""Makes lectures/, exercises/, solutions/, play/ and the start page from source/, and says what is outdated.

The command `autograder build` calls `build` and `check`. Both make the course in a temporary folder, complete
but for outputs, and compare it with what is there: a second build finds nothing to do, a check runs nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode, from_dict

from autograder.kit import whole_file
from autograder.notebooks.compare import code_cells, difference, has_outputs, read, was_run
from autograder.notebooks.execute import ExecutionError, execute
from autograder.notebooks.metadata import BLANK, FOLDED
from autograder.notebooks.stage import START_PAGE, stage

FOLDERS = ("exercises", "lectures", "play", "solutions")
EXECUTED = ("lectures", "play", "solutions")
OF_PLAYERS = {"incidents", "puzzle_records.json", "puzzle_records.broken.json"}  # in play/
NOT_OURS = {".fourranks", ".ipynb_checkpoints", "__pycache__", *OF_PLAYERS}  # left by notebooks and Python
LARGE = 1_500_000  # bytes; up to here a notebook opens at once, in JupyterLab and on a forge


class BuildError(Exception):
    """One file cannot be brought up to date; the text says why and what to do."""


def check(course: Path) -> list[str]:
    """List built files that are not what source/ makes, as `path: reason`; outputs are not compared.

    Raises:
        SourceError: source/ has a mistake.
    """
    with _staged(course) as staged:
        return [f"{path}: {reason}" for path, reason in _out_of_date(staged, course)]


def build(course: Path) -> list[str]:
    """Bring every built file up to date; return those that stay as they were, as `path: reason`.

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
    """List the files to update, relative to the course, and why; the start page comes last."""
    paths: set[Path] = set()
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
    """Make the built file again, or remove it if an earlier build made it and this one does not."""
    previous = read(course / path) if path.suffix == ".ipynb" else None
    if previous and path.parts[0] == "exercises" and has_outputs(previous):
        raise BuildError(
            "it holds outputs: someone works in it. Copy it elsewhere, git checkout it, and build again."
        )
    if previous and path.parts[0] == "play" and _was_played(previous, read(staged / path)):
        raise BuildError("someone plays in it. Copy it elsewhere, git checkout it, and build again.")
    (course / path).parent.mkdir(parents=True, exist_ok=True)
    if not (staged / path).exists():
        _remove(course / path, previous)
    elif path.suffix == ".ipynb" and path.parts[0] in EXECUTED:
        whole_file.write(course / path, _executed(staged / path, previous, course))
    else:
        whole_file.write(course / path, (staged / path).read_bytes())
    print(f"{'made' if (course / path).exists() else 'removed'} {path}")


def _was_played(built: NotebookNode, wanted: NotebookNode | None) -> bool:
    """Tell whether a notebook differs from what its text, which has not changed, has made."""
    if wanted is None or built.metadata.get("fourranks") != wanted.metadata.fourranks:
        return False
    return [cell.source for cell in built.cells] != [cell.source for cell in wanted.cells]


def _remove(built: Path, previous: NotebookNode | None) -> None:
    if previous is None or "fourranks" not in previous.metadata:
        raise BuildError("nothing in source/ makes it, and no build made it. Move it elsewhere.")
    built.unlink()


def _executed(staged: Path, previous: NotebookNode | None, course: Path) -> bytes:
    """Return the staged notebook with outputs: those of the previous one if only prose has changed."""
    notebook = nbformat.read(staged, as_version=4)
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
    """Put the notebook that nbgrader's own commands read next to its text; it is not committed."""
    text, built = course / path.with_suffix(".py"), course / path
    wanted = (staged / path).read_bytes()
    if built.exists() and built.read_bytes() == wanted:
        return
    if built.exists() and built.stat().st_mtime > text.stat().st_mtime:
        raise BuildError(
            f"it was edited, but the course is built from {text.name}. To keep the edits, run "
            f"`.venv/bin/jupytext --to py:percent {path}`; to drop them, remove it. Then build again."
        )
    whole_file.write(built, wanted, as_old_as=text)  # until someone edits it
