"""Puts what a learning platform gives for download where nbgrader looks, whatever its files are called.

`autograder collect` calls `collect`. Names and contents are students': nothing is written but notebooks, each
to one place. nbgrader's own zip_collect stops at the first broken zip, and at the first second notebook.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from autograder.grading.submission import MAX_BYTES

NOTEBOOK = "exercise.ipynb"
# Moodle: Ada Lovelace_1234567_assignsubmission_file_/exercise.ipynb
# Canvas: lovelaceada_LATE_12345_6789012_exercise-1.ipynb; the second number is the file's.
PLATFORMS = r"(?:^|/)[^/]+?_(?:LATE_)?(?P<student>\d+)_(?:assignsubmission_|\d+_)"
_STUDENT = re.compile(r"\w[\w.@-]*")  # what names a folder, and nothing outside of it
_COPY = re.compile(r"(?:-| ?\()(\d+)\)?\.ipynb$")  # exercise-1.ipynb, exercise (1).ipynb
_HIDDEN = re.compile(r"(?:^|/)(?:\.|__MACOSX)")  # copies that JupyterLab and macOS keep

DEPTH = 2  # zips in zips that students make


class CollectError(Exception):
    """Nothing can be collected; the text says why and what to do."""


@dataclass(frozen=True)
class File:
    """A file of a download: its path in folders and zips, and what is in it, but for large files."""

    path: str
    content: bytes

    @property
    def copy(self) -> int:
        """The number that a browser or a platform has put behind its name: the highest is the newest."""
        number = _COPY.search(self.path)
        return int(number[1]) if number else 0


def collect(
    course: Path, assignment: str, download: Path, names: str = PLATFORMS, worksheet: Path | None = None
) -> list[str]:
    """Copies each student's notebook to submitted/, and says of which ones; returns a line for each problem.

    Args:
        download: a folder or a zip.
        names: a pattern, with a group `student`, of paths in the download; its first match counts.
        worksheet: Moodle's, by which students are called by their addresses. Its numbers in the download are
            others in each assignment.

    Raises:
        CollectError: when there is no such assignment or download, or nobody in it.
    """
    release = course / "exercises" / assignment / NOTEBOOK
    if not release.is_file():
        raise CollectError(f"There is no {release}. Name an assignment, such as 02_collectives.")
    questions = _questions(release.read_bytes())
    students = _by_student(download, names)
    addresses = _addresses(worksheet) if worksheet else {}
    problems = []
    for number, files in sorted(students.items()):
        student = addresses.get(number, number)
        chosen, others = _chosen(files, questions)
        if chosen is None:
            problems.append(f"{student}: no notebook of {assignment} in {_listed(files)}")
            continue
        done = _write(course / "submitted" / student / assignment / NOTEBOOK, chosen.content)
        print(f"{student}: {done} {chosen.path!a}")
        if others:
            problems.append(f"{student}: {chosen.path!a} counts, not {_listed(others)}")
    return problems


def _by_student(download: Path, names: str) -> dict[str, list[File]]:
    try:
        pattern = re.compile(names)
        students = defaultdict(list)
        for file in _files(download):
            found = pattern.search(file.path)
            if found and _STUDENT.fullmatch(found["student"]) and not _HIDDEN.search(file.path):
                students[found["student"]].append(file)
    except (re.error, IndexError) as error:
        raise CollectError(f"The pattern {names!r} finds no student: {error}") from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise CollectError(f"{download} is damaged, download it again: {error}") from None
    if not students:
        raise CollectError(
            f"No file in {download} names a student as in a zip that Moodle or Canvas makes; is it that zip? "
            "--names takes a pattern of other names, such as '(?P<student>[^/]+)/' for a folder each."
        )
    return students


def _addresses(worksheet: Path) -> dict[str, str]:
    """Each participant's address, by number; what columns are called depends on the language."""
    try:
        with worksheet.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise CollectError(f"{worksheet} cannot be read as a table: {error}") from None
    found = {}
    for first, *others in rows:
        number = re.search(r"\d+$", first)
        address = next((cell for cell in others if "@" in cell and _STUDENT.fullmatch(cell)), None)
        if number and address:
            found[number[0]] = address
    if not found:
        raise CollectError(f"{worksheet} has no line with a participant's number and an e-mail address.")
    return found


def _chosen(files: Sequence[File], questions: set[str]) -> tuple[File | None, list[File]]:
    """The notebook that counts, if there is one, and those that would have counted without it."""
    notebooks = [file for file in files if file.path.lower().endswith(".ipynb")]
    readable = {file.path: _questions(file.content) for file in notebooks}
    fitting = [file for file in notebooks if readable[file.path] and readable[file.path] & questions]
    # What cannot be read is collected, too: when it is graded its feedback says why.
    fitting = fitting or [file for file in notebooks if readable[file.path] is None]
    chosen = max(fitting, key=lambda file: file.copy, default=None)
    return chosen, [file for file in fitting if file is not chosen]


def _questions(notebook: bytes) -> set[str] | None:
    """The names of its graded cells; None if it cannot be read."""
    try:
        fields = [cell["metadata"].get("nbgrader", {}) for cell in json.loads(notebook)["cells"]]
        return {field["grade_id"] for field in fields if field.get("grade")}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _write(path: Path, content: bytes) -> str:
    """Write the file whole or not at all; what that means for a student."""
    before = path.read_bytes() if path.is_file() else None
    if before == content:
        return "as before,"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
    return "collected" if before is None else "collected anew"


def _listed(files: Sequence[File]) -> str:
    return ", ".join(ascii(file.path) for file in files)


# --- what a download has in it
# ------------------------------------------------------------------------------


def _files(download: Path) -> Iterator[File]:
    """All files, those in zips, too; links are not followed."""
    if not download.is_dir():
        with _opened(download) as platforms:
            yield from _members(platforms, "")
        return
    for path in sorted(download.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as content:
                yield from _unpacked(path.relative_to(download).as_posix(), content)


def _opened(download: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(download)
    except (OSError, zipfile.BadZipFile) as error:
        raise CollectError(f"{download} is neither a folder nor a zip: {error}") from None


def _members(archive: zipfile.ZipFile, prefix: str, depth: int = 0) -> Iterator[File]:
    for member in archive.infolist():
        if not member.is_dir():
            with archive.open(member) as content:
                yield from _unpacked(prefix + member.filename, content, depth)


def _unpacked(path: str, content: IO[bytes], depth: int = 0) -> Iterator[File]:
    """The file itself, and of a student's zip what is in it, if it can be unpacked."""
    kind = path.lower().rpartition(".")[2]
    data = content.read(MAX_BYTES + 1) if kind in ("ipynb", "zip") else b""
    yield File(path, data if kind == "ipynb" and len(data) <= MAX_BYTES else b"")
    if kind == "zip" and depth < DEPTH:
        # zipfile raises whatever its parsers do; the zip itself is listed above.
        with contextlib.suppress(Exception), zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) <= MAX_BYTES:
                yield from _members(archive, f"{path}/", depth + 1)
