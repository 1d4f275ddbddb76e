"""A submission as it is graded: a student's answers, between the cells that only the instructor writes.

`referee` gets what this makes. Whatever has changed in locked cells, ids, points and metadata, each cell of
the release that has a name is in the result exactly once, as the instructor has it but for the answer in it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell

from autograder.grading import pictures
from autograder.kit.text import line

MAX_BYTES = 64 << 20  # of a notebook's file, with all its pictures
MAX_ALL_BYTES = 100_000_000  # of all files that are handed in with it, as nbgrader's exchange has it
MAX_CELLS = 5_000
MAX_CODE = 100_000  # characters of a cell; the longest cell of a solution has a tenth of it
MAX_SOURCE = 500_000  # characters of all cells; the longest solution has a tenth of it
MAX_TEXT = 20_000  # characters of a cell of text: HTML takes longer to make than code to run
MAX_ALL_TEXT = 200_000
MAX_PICTURES = 8 << 20  # characters of all pictures; a screenshot has some 100,000
MAX_NAME = 100  # characters of a cell's name
MAX_ERROR = 200  # characters of what a parser says
MAX_FILES = 10_000  # that are handed in with a notebook, with folders
MAX_DEPTH = 20  # of folders in folders
ASK = "See whether Jupyter opens it, and replace it by a copy that it opens."
_PLAIN = (stat.S_IFREG, stat.S_IFDIR)
_MAKE = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
_CONFLICT = re.compile(rb"^\s*<<<<<<< ", re.MULTILINE)
HIDDEN = re.compile(r"^[^\n]*BEGIN HIDDEN TESTS.*?END HIDDEN TESTS[^\n]*\n?", re.MULTILINE | re.DOTALL)


class SubmissionError(Exception):
    """A notebook that was handed in, or handed out, cannot be read; the text says why and what to do."""


def release(course: Path, assignment: str, notebook: str) -> NotebookNode:
    """Read the instructor's notebook, with hidden tests, as `nbgrader generate_assignment` does.

    Raises:
        SubmissionError: when it is not there, or not whole.
    """
    path = course / "source" / assignment / f"{notebook}.ipynb"
    if not path.is_file():
        raise SubmissionError(f"{path} is missing: run `make build`, which makes it.")
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises all errors of its converters
        why = line(str(error), MAX_ERROR)
        raise SubmissionError(
            f"{path} is not a notebook ({why}): run `make build`, which makes it."
        ) from None


def read(path: Path) -> NotebookNode:
    """Read what a student wrote in the notebook at `path`: its cells' text and names, no outputs.

    It may take any time and memory to find out; `intake` calls this where both have an end.

    Raises:
        SubmissionError: when it is no notebook, or larger than any that people write.
    """
    content = _parsed(path)
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise SubmissionError(f"{path} is not a notebook: it has no list of cells. {ASK}")
    if len(cells) > MAX_CELLS:
        raise SubmissionError(f"{path} has more than {MAX_CELLS:,} cells")
    for number, cell in enumerate(cells, 1):
        if not (isinstance(cell, dict) and _is_text(cell.get("source"))):
            raise SubmissionError(f"{path} is not a notebook: its cell {number} has no text as source. {ASK}")
    cells = [_text_of(cell) for cell in cells]
    _require_sizes(path, cells)
    return NotebookNode(nbformat=4, nbformat_minor=5, metadata=NotebookNode(), cells=cells)


def require_own(path: Path) -> None:
    """Require a file that is not too large to be looked at, and plain files near it that nbgrader can copy.

    Raises:
        SubmissionError: there is no such file, or there are links, which could lead to files of other people,
            or pipes and devices, which can keep a reader waiting forever, or files that can fill a disk.
    """
    for folder in (path.parent.parent, path.parent):
        if folder.is_symlink():
            raise SubmissionError(f"{folder} is a link, and links are not followed")
    try:
        beside = {each: each.lstat() for each in all_in(path.parent)}
    except OSError as error:  # its path may be longer than Linux takes
        raise SubmissionError(f"{path.parent} cannot be looked through: {error.strerror}") from None
    kinds = [(each.name, stat.S_IFMT(status.st_mode)) for each, status in beside.items()]
    if links := [name for name, kind in kinds if kind == stat.S_IFLNK]:
        named = line(", ".join(links[:3]))
        raise SubmissionError(f"{path.parent} has links, which are not followed: {named}")
    if others := [name for name, kind in kinds if kind not in _PLAIN]:
        named = line(", ".join(others[:3]))
        raise SubmissionError(f"{path.parent} has pipes or devices, which are not read: {named}")
    if pages := [name for name, kind in kinds if kind == stat.S_IFDIR and name.endswith(".html")]:
        raise SubmissionError(
            f"{path.parent} has a folder {line(pages[0])}, which nbgrader would take for a page of feedback: "
            "rename it"
        )
    if not path.is_file():
        raise SubmissionError(f"{path} is not a file")
    if not os.access(path, os.R_OK):
        raise SubmissionError(f"you may not read {path}: change its permissions")
    if path.stat().st_size > MAX_BYTES:
        raise SubmissionError(f"{path} is larger than {MAX_BYTES >> 20} MiB: clear its outputs and try again")
    if (size := sum(status.st_size for status in beside.values())) > MAX_ALL_BYTES:
        raise SubmissionError(
            f"{path.parent} has {size:,} bytes in all its files, more than {MAX_ALL_BYTES:,}: nbgrader would "
            "copy them all. Remove what is not the notebook"
        )


def all_in(folder: Path) -> Iterator[Path]:
    """Yield the path of all that is in a folder, and in folders in it.

    Raises:
        SubmissionError: there are more files and folders than anybody hands in.
    """
    left = MAX_FILES
    for place, folders, files in os.walk(folder):
        left -= len(folders) + len(files)
        if left < 0 or len(Path(place).relative_to(folder).parts) > MAX_DEPTH:
            raise SubmissionError(
                f"{folder} has more than {MAX_FILES:,} files and folders, or more than {MAX_DEPTH} folders "
                "in one another"
            )
        yield from (Path(place, name) for name in (*folders, *files))


def _parsed(path: Path) -> object:
    data = path.read_bytes()
    try:
        content = json.loads(data)
        if isinstance(content, dict) and content.get("nbformat") != 4:
            content = nbformat.reads(json.dumps(content), as_version=4)
        return content
    except MemoryError:  # of which `intake` knows whose it is
        raise
    except Exception as error:  # nbformat raises all errors of its converters
        raise SubmissionError(f"{path} is not a notebook: {_why_unreadable(data, error)}") from None


def _why_unreadable(data: bytes, error: Exception) -> str:
    """Say what is wrong with the bytes of a notebook, and what to do."""
    if not data.strip():
        return f"it is empty. {ASK}"
    if _CONFLICT.search(data):
        return "git has left conflict markers (<<<<<<<) in it. Resolve the conflict, and hand it in again."
    if isinstance(error, UnicodeDecodeError):
        return "its text is not UTF-8. Save it as UTF-8, as Jupyter does, and hand it in again."
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON at line {error.lineno}, column {error.colno}. {ASK}"
    return f"{line(f'{type(error).__name__}: {error}', MAX_ERROR)}. {ASK}"


def _is_text(source: object) -> bool:
    return isinstance(source, str) or (
        isinstance(source, list) and all(isinstance(each, str) for each in source)
    )


def _text_of(cell: dict[str, Any]) -> NotebookNode:
    """Return what counts of a cell: its kind, its name, its text, and the pictures in it."""
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    kind = cell.get("cell_type")
    metadata = cell.get("metadata")
    fields = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = fields.get("grade_id") if isinstance(fields, dict) else None
    source = source.encode("utf-8", "replace").decode().replace("\r\n", "\n")
    more: dict[str, Any] = {"outputs": [], "execution_count": None} if kind == "code" else {}
    if kind == "markdown":
        source, attachments = pictures.kept_beside(source, cell.get("attachments"))
        more |= {"attachments": attachments} if attachments else {}
    return NotebookNode(
        more,
        cell_type=kind if isinstance(kind, str) and kind in _MAKE else "raw",
        id=_name(cell.get("id")),
        metadata=NotebookNode(nbgrader=NotebookNode(grade_id=_name(name))),
        source=source,
    )


def _name(value: object) -> str:
    return value[:MAX_NAME] if isinstance(value, str) else ""


def _require_sizes(path: Path, cells: list[NotebookNode]) -> None:
    """Require no more text than people read."""
    code = [len(cell.source) for cell in cells if cell.cell_type == "code"]
    text = [len(cell.source) for cell in cells if cell.cell_type != "code"]
    for what, size, most in (
        ("a cell of code", max(code, default=0), MAX_CODE),
        ("a cell of text", max(text, default=0), MAX_TEXT),
        ("code", sum(code), MAX_SOURCE),
        ("text", sum(text), MAX_ALL_TEXT),
        ("pictures", sum(pictures.size(cell.get("attachments", {})) for cell in cells), MAX_PICTURES),
    ):
        if size > most:
            raise SubmissionError(f"{path} has {size:,} characters in {what}, more than {most:,}")
    if any(pictures.has_too_many_pixels(cell.get("attachments", {})) for cell in cells):
        raise SubmissionError(f"{path} has a picture with more pixels than any screenshot: make it smaller")


def restored(submitted: NotebookNode, release: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """Return the notebook to grade, and what had to be repaired, a line each.

    Cells stay in the student's order, but a locked one comes after what it follows in the release, and what
    comes before all answers there, the imports, comes first: kernels have run it before, wherever it lies.

    Args:
        submitted: as it came, once it could be read as a notebook.
        release: the instructor's, with hidden tests, as `source` reads it.
    """
    named = {cell.metadata.nbgrader.grade_id: cell for cell in release.cells if "nbgrader" in cell.metadata}
    came = list(_named_cells(submitted, named))
    cells = [
        _answered(named[name], cell) if name else _further(cell, number)
        for number, (name, cell) in enumerate(_once(came, named), 1)
    ]
    ours = {name for name, cell in named.items() if cell.metadata.nbgrader.locked and not is_test(cell)}
    leading = [*itertools.takewhile(ours.__contains__, named)]
    before = None
    for name, cell in named.items():
        first = _place_after(before, cells)
        place = next((index for index, other in enumerate(cells) if name_of(other) == name), None)
        if place is None:
            cells.insert(first, _answered(cell, NotebookNode(source="")))
        elif cell.metadata.nbgrader.locked and place < first:
            cells.insert(first - 1, cells.pop(place))
        elif name in leading:
            cells.insert(first, cells.pop(place))
        before = name
    repairs = list(_repairs(came, named))
    return NotebookNode({**deepcopy(release), "cells": cells}), repairs


def repaired(submitted: NotebookNode, release: NotebookNode) -> NotebookNode:
    """Return the notebook to grade, which says at its top and in its metadata what was repaired."""
    notebook, repairs = restored(submitted, release)
    notebook.metadata.setdefault("fourranks", NotebookNode()).repairs = repairs
    if repairs:
        text = "\n".join(["**Repaired before it was graded**", "", *(f"- {repair}" for repair in repairs)])
        notebook.cells.insert(0, new_markdown_cell(text))
    return notebook


Named = tuple[str | None, NotebookNode]


def _named_cells(submitted: NotebookNode, named: dict[str, NotebookNode]) -> Iterator[Named]:
    """Yield each cell with its name in the release: nbgrader's field, the cell's id, or by its text.

    Some programs drop both, and so does copying cells into a new notebook.
    """
    came = [(_own_name(cell, named), cell) for cell in submitted.cells]
    by_text = _by_text({name: named[name] for name in named.keys() - {name for name, _ in came}})
    for name, cell in came:
        texts = (cell.source.strip(), _first_line(cell))
        yield name or next((by_text[text] for text in texts if text and by_text.get(text)), None), cell


def _own_name(cell: NotebookNode, named: dict[str, NotebookNode]) -> str | None:
    names = (field_of(cell, "grade_id"), cell.get("id"))
    return next((name for name in names if isinstance(name, str) and name in named), None)


def _by_text(named: dict[str, NotebookNode]) -> dict[str, str]:
    """Return names by the text of locked cells, and by the first line of answers; "" where it is two's."""
    by_text: dict[str, str] = {}
    for name, cell in named.items():
        locked = cell.metadata.nbgrader.locked
        for text in {*_as_handed_out(cell.source)} if locked else {_first_line(cell)}:
            by_text[text] = "" if text in by_text else name
    return by_text


def _first_line(cell: NotebookNode) -> str:
    return str(cell.source.strip().partition("\n")[0].rstrip())


def _once(came: list[Named], named: dict[str, NotebookNode]) -> Iterator[Named]:
    """Let the last copy of a cell count, as in a kernel; other copies of an answer are the student's own."""
    last = {name: index for index, (name, _) in enumerate(came)}
    for index, (name, cell) in enumerate(came):
        if name is None or index == last[name]:
            yield name, cell
        elif not named[name].metadata.nbgrader.locked:
            yield None, cell


def _answered(released: NotebookNode, cell: NotebookNode) -> NotebookNode:
    """Return the released cell, with what the student wrote in it unless it is locked."""
    if released.metadata.nbgrader.locked:
        return deepcopy(released)
    return NotebookNode({**deepcopy(released), "source": cell.source, **_beside(cell, released.cell_type)})


def _further(cell: NotebookNode, number: int) -> NotebookNode:
    """Return a cell of the student's own, which counts for nothing by itself."""
    return _MAKE[cell.cell_type](cell.source, id=f"own-{number}", **_beside(cell, cell.cell_type))


def _beside(cell: NotebookNode, kind: str) -> dict[str, NotebookNode]:
    """Return the pictures of a cell as fields of one of this kind."""
    return {"attachments": cell.attachments} if kind == "markdown" and "attachments" in cell else {}


def _place_after(name: str | None, cells: list[NotebookNode]) -> int:
    """Return the place behind the cell of this name; in front of all code if it is None."""
    if name is None:
        return next((index for index, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    return next(index + 1 for index, cell in enumerate(cells) if name_of(cell) == name)


def field_of(cell: NotebookNode, name: str) -> Any:
    """Return one of nbgrader's fields of a cell; None where it is not there."""
    fields = cell.metadata.get("nbgrader")
    return fields.get(name) if isinstance(fields, dict) else None


def name_of(cell: NotebookNode) -> str:
    """Return a cell's grade_id; "" for a cell of the student's own."""
    return field_of(cell, "grade_id") or ""


def is_test(cell: NotebookNode) -> bool:
    """Tell whether this is a cell of the instructor's that earns points by itself."""
    return bool(field_of(cell, "grade")) and not field_of(cell, "solution")


def _repairs(came: list[Named], named: dict[str, NotebookNode]) -> Iterator[str]:
    for name, cell in named.items():
        own = [submitted for other, submitted in came if other == name]
        if not own:
            again = "as it was handed out" if cell.metadata.nbgrader.locked else "without an answer"
            yield f"{name}: the cell was missing; it is there again, {again}"
        elif len(own) > 1:
            yield f"{name}: the cell was there {len(own)} times; the last one counts"
        elif own[-1].cell_type != cell.cell_type:
            yield f"{name}: the cell was made a {own[-1].cell_type} cell; it is a {cell.cell_type} cell again"
        elif cell.metadata.nbgrader.locked and own[-1].source.strip() not in _as_handed_out(cell.source):
            yield f"{name}: the cell is locked and was changed; the instructor's is used"


def _as_handed_out(source: str) -> tuple[str, str]:
    """Return a locked cell without hidden tests, and with: some hand in what the course is made from."""
    return HIDDEN.sub("", source).strip(), source.strip()
