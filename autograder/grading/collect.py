"""Puts a learning platform's download where nbgrader looks, whatever its files are called.

`autograder collect` calls `collect`. Names and contents are students': nothing is written but notebooks, each
to one place, and only where it is certain whose they are. nbgrader's own zip_collect stops at the first
broken zip, and at the first second notebook.
"""

from __future__ import annotations

import csv
import os
import re
import stat
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autograder.grading import uploads
from autograder.grading.pool import Failed, Pool, usable_cores
from autograder.grading.uploads import Found, Upload
from autograder.kit import whole_file
from autograder.kit.folders import walk
from autograder.kit.text import line
from fourranks.naming import some_of

NOTEBOOK = "exercise.ipynb"
# Moodle: Ada Lovelace_1234567_assignsubmission_file_/exercise.ipynb
# Canvas: lovelaceada_LATE_12345_6789012_exercise-1.ipynb; the second number is the file's.
PLATFORMS = r"_(?:LATE_)?(?P<student>[0-9]{1,20})_(?:(?P<moodle>assignsubmission)|[0-9]{1,20})(?=_)"
# The name of a folder, which leads nowhere else, without marks on letters, such as vowels of Hindi; nbgrader
# reads brackets as a pattern.
_STUDENT = re.compile(r"\w(?:[\w .,@+'()-]{0,98}[\w.@+'()-])?")
_LONGEST = 200  # bytes of that name, of the 255 that Linux allows
_MOST_NAMED = 5  # files, in a message


class CollectError(Exception):
    """Nothing can be collected; the text says why and what to do."""


@dataclass
class _Uploads:
    """A student's part of a download.

    Attributes:
        owners: names in front of the student's number: a platform puts the same in front of all.
        doubtful: paths that may be another's, or another's that may be this student's.
    """

    paths: list[str] = field(default_factory=list)
    owners: set[str] = field(default_factory=set)
    doubtful: list[str] = field(default_factory=list)


def collect(
    course: Path, assignment: str, download: Path, names: str = PLATFORMS, worksheet: Path | None = None
) -> list[str]:
    """Copy each student's notebook to submitted/, and say which; return a line for each problem.

    Args:
        download: a folder or a zip.
        names: a pattern, with a group `student`, of paths in the download; its first match counts.
        worksheet: Moodle's, by which students are called by their addresses. Its numbers in the download are
            others in each assignment.

    Raises:
        CollectError: when there is no such assignment or download, or no student in it.
    """
    release = course / "exercises" / assignment / NOTEBOOK
    if not release.is_file():
        raise CollectError(f"There is no {release}. Name an assignment, such as 02_collectives.")
    questions = uploads.questions(release.read_bytes())
    paths, problems = _paths(download)
    students, unusable = _by_student(paths, names)
    if not (students or unusable or problems):
        raise CollectError(
            f"No file in {download} is named as in a zip from Moodle or Canvas, so no student is "
            "known. --names takes a pattern for other names, such as '(?P<student>[^/]+)/' for a folder each."
        )
    if worksheet:
        students = _by_address(students, _addresses(worksheet))
    problems += [_unusable(name) for name in unusable]
    problems += [_doubt(student, files) for student, files in students.items() if files.doubtful]
    certain = {student: files.paths for student, files in students.items() if not files.doubtful}
    for student, found in _found(download, certain, questions):
        problems += _kept(course / "submitted" / student / assignment / NOTEBOOK, student, found)
    return sorted(problems)


def find_in(folder: Path, release: bytes) -> Found:
    """Find the notebook of an assignment in a folder with all that one student uploaded.

    Args:
        release: the assignment's notebook.
    """
    questions = uploads.questions(release)
    paths, problems = _paths(folder)
    ((_, found),) = _found(folder, {"": paths}, questions)
    found.problems += problems
    return found


def _found(
    download: Path, students: Mapping[str, list[str]], questions: frozenset[str]
) -> Iterable[tuple[str, Found]]:
    """Yield what each student uploaded, or that it takes too much memory or time to read."""
    given = {Upload(download, tuple(paths), questions): name for name, paths in sorted(students.items())}
    shares = [(core,) for core in usable_cores()][: len(given)]
    with Pool(uploads.find, shares, uploads.SECONDS, uploads.MEMORY) as workers:
        for upload, found in workers.results(given):
            if isinstance(found, Failed):
                found = Found(list(upload.paths), problems=[f"it cannot be read: {found.reason}"])
            yield given[upload], found


def _kept(path: Path, student: str, found: Found) -> list[str]:
    """Put the notebook in its place, and say what a person should know."""
    if found.chosen is None:
        looked = listed(found.paths) or "hidden files, which are not looked into"
        return [f"{student}: no notebook of {path.parent.name} in {looked}{why_unread(found)}"]
    try:
        written = _write(path, found.content)
    except OSError as error:
        return [f"{student}: NOT collected: {line(str(error))}"]
    print(f"{student}: {written} {_quoted(found.chosen)}")
    return [f"{student}: {said}"] if (said := what_counts(found)) else []


def what_counts(found: Found) -> str:
    """Say which notebook counts where there were others, or what could not be read; else nothing."""
    if found.chosen is None or not (found.others or found.problems):
        return ""
    others = f", not {listed(found.others)}" if found.others else ""
    return f"{_quoted(found.chosen)} counts{others}{why_unread(found)}"


def why_unread(found: Found) -> str:
    """Name, in parentheses, the files that could not be read, and the reason."""
    return f" ({listed(found.problems)})" if found.problems else ""


def _doubt(student: str, files: _Uploads) -> str:
    return (
        f"{student}: NOT collected, because more than one student may own {listed(files.doubtful)}. "
        "Unpack the download, rename what is another student's, and collect the folder."
    )


def _unusable(name: str) -> str:
    return (
        f"{_quoted(name)}: NOT collected, because it cannot be a student's name here: that has letters, "
        "digits, spaces and . , @ + ' ( ) - _ alone, begins with a letter or a digit, and has "
        f"{_LONGEST} bytes at most. "
        "Rename it in the unpacked download, and collect the folder."
    )


# --- whose files they are ---------------------------------------------------------------------------------


def _by_student(paths: list[str], names: str) -> tuple[dict[str, _Uploads], set[str]]:
    """Return what there is of each student, and names in paths that no student can have."""
    try:
        pattern = re.compile(names)
        students: dict[str, _Uploads] = defaultdict(_Uploads)
        unusable = {name for path in paths if (name := _add(students, path, pattern))}
    except (re.error, IndexError) as error:
        raise CollectError(f"The pattern {names!r} finds no student: {error}") from None
    for files in students.values():
        if len(files.owners) > 1:
            files.doubtful += files.paths
    return students, unusable


def _add(students: dict[str, _Uploads], path: str, pattern: re.Pattern[str]) -> str:
    """Note whose file it is, or whose it may be: of its path a student has chosen every part but a number.

    Returns:
        The name in the path, if no student can have it; else "".
    """
    found = pattern.search(path)
    if not found or not found["student"]:
        return ""
    name = unicodedata.normalize("NFC", found["student"])  # as in a roster; macOS takes letters apart
    if not _is_student(name):
        return name
    if pattern.pattern != PLATFORMS:
        students[name].paths.append(path)
        return ""
    start, end = path.rfind("/", 0, found.start()) + 1, path.find("/", found.end())
    part = path[start:] if end < 0 else path[start:end]
    readings = list(pattern.finditer(part))
    if end < 0 and found["moodle"]:  # other numbers are in the name of the file, which is the student's own
        readings = [reading for reading in readings if reading["moodle"]]
    numbers = {reading["student"] for reading in readings}
    for number in numbers:
        if len(numbers) > 1:
            students[number].doubtful.append(path)
        else:
            students[number].paths.append(path)
            students[number].owners.add(part[: readings[0].start()])
    return ""


def _is_student(name: str) -> bool:
    letters = "".join(each for each in name if not unicodedata.category(each).startswith("M"))
    return bool(_STUDENT.fullmatch(letters)) and name[0] == letters[0] and len(name.encode()) <= _LONGEST


def _by_address(students: Mapping[str, _Uploads], addresses: Mapping[str, str]) -> dict[str, _Uploads]:
    """Name students by address; those who share one are in doubt."""
    named: dict[str, _Uploads] = {}
    for number, files in students.items():
        name = addresses.get(number, number)
        if name in named:
            named[name].doubtful += [*named[name].paths, *files.paths, *files.doubtful]
        else:
            named[name] = files
    return named


def _addresses(worksheet: Path) -> dict[str, str]:
    """Return each participant's address, by number; the language decides what columns are called."""
    try:
        with worksheet.open(newline="", encoding="utf-8-sig") as file:
            lines = file.readlines()
        # Programs put semicolons between columns where a comma stands in a number.
        between = max(",;\t", key="".join(lines[:1]).count)
        rows = [row for row in csv.reader(lines, delimiter=between) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise CollectError(f"{worksheet} cannot be read as a table: {error}") from None
    # A name can be anybody's address, too: the column counts that has one in most lines.
    columns = range(1, max(map(len, rows), default=1))
    column = max(columns, key=lambda place: sum(_is_address(row, place) for row in rows), default=0)
    numbers = [(re.search(r"[0-9]+$", row[0]), row) for row in rows]
    found = {number[0]: row[column] for number, row in numbers if number and _is_address(row, column)}
    if not found:
        raise CollectError(f"{worksheet} has no line with a participant's number and an e-mail address.")
    return found


def _is_address(row: Sequence[str], column: int) -> bool:
    return 0 < column < len(row) and "@" in row[column] and _is_student(row[column])


def _paths(download: Path) -> tuple[list[str], list[str]]:
    """List the paths of all files of a download, and say what cannot be read. Links are not followed."""
    if download.is_dir():
        paths: list[str] = []
        unread: list[OSError] = []
        for place, _, names in walk(download, unread.append):
            for path in (os.path.join(place, name) for name in names):
                try:
                    paths += [os.path.relpath(path, download)] if stat.S_ISREG(os.lstat(path).st_mode) else []
                except OSError as error:  # its path may be longer than Linux takes
                    unread.append(error)
        return sorted(paths), sorted(_unread(error, download) for error in unread)
    try:
        with zipfile.ZipFile(download) as archive:
            return [member.filename for member in archive.infolist() if not member.is_dir()], []
    except (OSError, zipfile.BadZipFile) as error:
        raise CollectError(f"{download} is neither a folder nor a zip: {error}") from None


def _unread(error: OSError, download: Path) -> str:
    path = os.path.relpath(error.filename, download)
    return f"{_quoted(path)}: NOT looked into: {error.strerror}. Change that, and collect the folder again."


# --- what is written and said -----------------------------------------------------------------------------


def _write(path: Path, content: bytes) -> str:
    """Write the file; return what to say of it."""
    before = path.read_bytes() if path.is_file() else None
    if before == content:
        return "as before,"
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, content)
    return "collected" if before is None else "collected again"


def listed(texts: Sequence[str]) -> str:
    """Quote the first few texts, each on one line, with nothing in them that is not seen."""
    return some_of(list(map(_quoted, texts)), _MOST_NAMED)


def _quoted(text: str) -> str:
    return f"'{line(text, 300)}'"
