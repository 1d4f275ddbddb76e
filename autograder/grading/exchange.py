"""Collecting from nbgrader's exchange, a folder in which every student of a class can write."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections import defaultdict
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from nbgrader.exchange.default.collect import ExchangeCollect

from autograder.grading.gradebook import TIMESTAMP
from autograder.grading.submission import MAX_DEPTH, SubmissionError, all_in
from autograder.kit.text import line

_NOBODY = ""  # handed in what was refused
SECRET = "submission_secret.txt"  # from which nbgrader makes the names of pages of feedback
_WITHOUT_SECRET = f"it has no text {SECRET}, which `nbgrader submit` puts there"


class EntryError(Exception):
    """An entry in the exchange is not to be collected; the text says why."""


class CarefulCollect(ExchangeCollect):
    """Collects the latest entry of each student among those that are surely the student's own.

    nbgrader itself follows links, and only warns when an entry claims to be another student's.
    """

    src_records: list[dict[str, Any]]

    def init_src(self) -> None:
        self._refused = 0
        super().init_src()
        self.src_records = [record for record in self.src_records if record["username"] != _NOBODY]

    def copy_files(self) -> None:
        super().copy_files()
        if self._refused:
            self.fail(f"Entries refused, see above: {self._refused}. The others are collected as ever.")

    def _path_to_record(self, path: str) -> dict[str, Any]:
        try:
            record = super()._path_to_record(path)
            if record["username"] == _NOBODY:
                raise EntryError("it names no student")
            _require_plain(Path(path))
            if not Path(path, SECRET).is_file():
                raise EntryError(_WITHOUT_SECRET)
            self._require_size(path)
            if self.check_owner:
                self._require_own(path, record["username"])
        except (EntryError, SubmissionError, ValueError, OverflowError, OSError) as error:
            # Its time may be any text, and its paths longer than Linux takes.
            self._refuse(path, error)
            return {"username": _NOBODY, "filename": path, "timestamp": datetime.min}
        return record

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """Copy an entry of which its owner may have changed everything since it was looked at."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "entry")
            try:
                _copy_plain(src, copy, 1000 * self.coursedir.max_dir_size)
                _require_secret(copy)
                # The student's own process wrote the file, too: collect and formgrader stop at one without a
                # time, and without the file nobody is late.
                (copy / TIMESTAMP).write_text(f"{super()._path_to_record(src)['timestamp']} UTC")
            except (EntryError, OSError) as error:
                self._refuse(src, error)
            else:
                super().do_copy(str(copy), dest, log)

    def _refuse(self, path: str, error: Exception) -> None:
        self.log.error(line(f"{os.path.basename(path)} is not collected: {error}"))
        self._refused += 1

    def _require_size(self, path: str) -> None:
        """Require what nbgrader would copy: it looks at the size only after it has deleted an older copy."""
        size, most = self.get_size(path), 1000 * self.coursedir.max_dir_size
        if size > most:
            raise EntryError(f"it has {size:,} bytes, more than {most:,}")

    def _require_own(self, path: str, student: str) -> None:
        """Require that the entry's owner is the student, or the owner of all entries of the student.

        All entries may be of one user that is no student: a JupyterHub's.
        """
        owner, me = os.lstat(path).st_uid, os.getuid()
        if owner not in (me, _account(student)) and len(self._owners[student] - {me}) > 1:
            raise EntryError(
                f"user {owner} owns it, and another user owns other entries of {student}. Delete what is not "
                f"{student}'s, or set c.ExchangeCollect.check_owner = False in nbgrader_config.py"
            )

    @cached_property
    def _owners(self) -> dict[str, set[int]]:
        """The users who own entries of each student, for any exercise."""
        owners: dict[str, set[int]] = defaultdict(set)
        for entry in os.scandir(self.inbound_path):
            owners[entry.name.rsplit("+", 3)[0]].add(entry.stat(follow_symlinks=False).st_uid)
        return owners


def _require_secret(copy: Path) -> None:
    """Require what nbgrader reads when it releases feedback: without it a whole class gets none."""
    try:
        (copy / SECRET).read_text()
    except (OSError, UnicodeDecodeError):
        raise EntryError(_WITHOUT_SECRET) from None


def _require_plain(entry: Path) -> None:
    """Require folders and files that can be read, and no links: they lead to files of other people."""
    _require_readable(entry)
    for path in all_in(entry):
        _require_readable(path)


def _require_readable(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise EntryError(f"{path.name} is a link, and links are not followed")
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise EntryError(f"{path.name} is neither a file nor a folder")
    if not os.access(path, os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK):
        raise EntryError(f"you may not read {path.name}")


def _copy_plain(entry: str, copy: Path, most: int) -> None:
    """Copy the folders and files of an entry, whatever is put in their place meanwhile: no link is followed.

    Raises:
        EntryError: it is not any more what was looked at.
    """
    for place, _, names, descriptor in os.fwalk(entry):
        within = Path(place).relative_to(entry)
        if len(within.parts) > MAX_DEPTH:
            raise EntryError("it has more folders in one another than when it was looked at")
        folder = copy / within
        folder.mkdir()
        for name in names:
            content = _content(name, descriptor, most)
            most -= len(content)
            (folder / name).write_bytes(content)
    if not copy.is_dir():
        raise EntryError("it is no folder any more")


def _content(name: str, folder: int, most: int) -> bytes:
    """Read a file in an open folder, and not what a link of its name leads to."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise EntryError(f"{name} is no file any more ({error.strerror})") from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise EntryError(f"{name} is no file any more")
        content = file.read(most + 1)
    if len(content) > most:
        raise EntryError("it has become too large")
    return content


def _account(student: str) -> int | None:
    """Return the number of the user of this name, if there is one."""
    try:
        return pwd.getpwnam(student).pw_uid
    except KeyError:
        return None
