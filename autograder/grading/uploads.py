"""Finds a notebook in what one student uploaded, zips and all: `collect` has it done where memory has an end.

Nothing here trusts a name or a size that a zip announces; nothing is written.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from autograder.grading.submission import HIDDEN, MAX_BYTES

MEMORY = 1 << 30  # bytes, in which an upload is unpacked and read
SECONDS = 60.0
DEPTH = 2  # zips in zips that students make
MAX_FILES = 10_000  # in all zips of an upload
_COPY = re.compile(r"(?:-| ?\()(\d{1,9})\)?\.ipynb[^/]*$")  # exercise-1.ipynb, exercise (1).ipynb
_OF_PROGRAMS = re.compile(r"(?:^|/)(?:\.|__MACOSX)")  # copies that JupyterLab and macOS keep


@dataclass(frozen=True)
class Upload:
    """One student's upload.

    Attributes:
        download: the folder or the zip in which it is.
        paths: of its files, in there.
        questions: of the assignment; its notebook has some of them.
    """

    download: Path
    paths: tuple[str, ...]
    questions: frozenset[str]


@dataclass
class Found:
    """The content of an upload.

    Attributes:
        paths: of all files, with those in zips.
        chosen: the notebook that counts, if there is one.
        others: notebooks that would count without it.
        problems: the files that could not be read, and why.
    """

    paths: list[str] = field(default_factory=list)
    chosen: str | None = None
    content: bytes = b""
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find(upload: Upload) -> Found:
    """Find the notebook of the assignment in an upload: of several the newest copy."""
    unpacking = _Unpacking()
    readable: dict[str, bytes] = {}
    unreadable: dict[str, bytes] = {}
    for path, content in unpacking.files(upload):
        own = _named_in(content) if content else set()
        if own is None:
            # An unreadable file is collected, too: when it is graded its feedback says why.
            unreadable[path] = content
        elif own & upload.questions:
            readable[path] = content
    fitting = readable or unreadable
    chosen = max(fitting, key=_recency, default=None)
    others = [path for path in fitting if path != chosen]
    content = fitting[chosen] if chosen else b""
    return Found(unpacking.paths, chosen, content, others, unpacking.problems)


def questions(release: bytes) -> frozenset[str]:
    """Return what tells an assignment's notebook: names of graded cells, and tests as handed out."""
    cells = json.loads(release)["cells"]
    graded = [cell for cell in cells if cell["metadata"].get("nbgrader", {}).get("grade")]
    tests = [cell for cell in graded if cell["metadata"]["nbgrader"]["locked"]]
    names = [cell["metadata"]["nbgrader"]["grade_id"] for cell in graded]
    return frozenset([*names, *(HIDDEN.sub("", _text(cell)).strip() for cell in tests)])


def _named_in(notebook: bytes) -> set[str] | None:
    """Return all that a notebook may be known by, as some programs drop names; None if it cannot be read."""
    try:
        cells = json.loads(notebook)["cells"]
        fields = [cell.get("metadata", {}).get("nbgrader") for cell in cells]
        names = [field.get("grade_id") for field in fields if isinstance(field, dict)]
        return {each for each in (*names, *[cell.get("id") for cell in cells], *map(_text, cells)) if each}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"]).strip()


def _recency(path: str) -> tuple[bool, int]:
    """Return what orders notebooks by their names: first backups and texts, then copies by their numbers."""
    number = _COPY.search(path)
    return path.lower().endswith(".ipynb"), int(number[1]) if number else 0


class _Unpacking:
    """Unpacks an upload, within limits for all of it.

    Attributes:
        paths, problems: as in `Found`.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.problems: list[str] = []
        self._bytes_left = MAX_BYTES
        self._files_left = MAX_FILES

    def files(self, upload: Upload) -> Iterator[tuple[str, bytes]]:
        """Yield each notebook and its content, but for those that are too large."""
        if upload.download.is_dir():
            for path in upload.paths:
                with (upload.download / path).open("rb") as content:
                    yield from self._unpacked(path, content, DEPTH)
            return
        with zipfile.ZipFile(upload.download) as archive:
            for path in upload.paths:
                with archive.open(path) as content:
                    yield from self._unpacked(path, content, DEPTH)

    def _unpacked(self, path: str, content: IO[bytes], depth: int) -> Iterator[tuple[str, bytes]]:
        """Yield the file itself, or what is in a zip, if it can be unpacked."""
        name = path.lower().rpartition("/")[2]
        kind = "zip" if name.endswith(".zip") else "ipynb" if ".ipynb" in name else ""  # exercise.ipynb.txt
        if _OF_PROGRAMS.search(path):
            return
        self.paths.append(path)
        if not kind:
            return
        data = content.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            self.problems.append(f"{path} is larger than {MAX_BYTES >> 20} MiB")
        elif kind == "ipynb":
            yield path, data
        elif depth:
            try:
                yield from self._members(path, data, depth - 1)
            except Exception as error:  # zipfile raises all errors of its parsers
                self.problems.append(f"{path} cannot be unpacked: {type(error).__name__}: {error}")

    def _members(self, path: str, data: bytes, depth: int) -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            self._bytes_left -= sum(member.file_size for member in members)
            self._files_left -= len(members)
            if min(self._bytes_left, self._files_left) < 0:
                raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB or {MAX_FILES:,} files in it")
            for member in members:
                with archive.open(member) as content:
                    yield from self._unpacked(f"{path}/{member.filename}", content, depth)
