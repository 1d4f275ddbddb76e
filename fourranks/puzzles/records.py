"""A player's records: a small file in the notebook's folder, and never a reason to stop a game."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

FILE = "puzzle_records.json"
BROKEN, LEGAL, PAR = "xop"  # one mark for each attempt
_MOST_MARKS = 30  # that are kept of a board


@dataclass
class BoardRecord:
    """The standing of one board.

    Attributes:
        best: the lowest score; None before the first attempt that broke no rule.
        marks: of the latest attempts, a letter each.
        attempts: how many there were in all.
    """

    best: int | None = None
    marks: str = ""
    attempts: int = 0


class Records:
    """The records of one folder. Where it cannot be written they last as long as the notebook's kernel."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._unsaved: dict[str, BoardRecord] | None = None

    def of(self, board: str) -> BoardRecord:
        """Return a board's record, an empty one if there is none or it cannot be read."""
        return self._all()[0].get(board, BoardRecord())

    def add(self, board: str, mark: str, score: int | None) -> tuple[BoardRecord, str]:
        """Note an attempt; return the board's record, and what is wrong with the file, if anything."""
        records, note = self._all()
        record = records.setdefault(board, BoardRecord())
        record.marks = (record.marks + mark)[-_MOST_MARKS:]
        record.attempts += 1
        if score is not None:
            record.best = score if record.best is None else min(record.best, score)
        return record, " ".join(filter(None, (note, self._write(records))))

    def _all(self) -> tuple[dict[str, BoardRecord], str]:
        if self._unsaved is not None:
            return self._unsaved, ""
        try:
            return _parsed(self._path.read_text(encoding="utf-8")), ""
        except FileNotFoundError:
            return {}, ""
        except (OSError, ValueError, RecursionError) as error:
            return {}, self._put_aside(error)

    def _put_aside(self, error: Exception) -> str:
        """Keep a file that cannot be read, under another name."""
        aside = self._path.with_suffix(".broken.json")
        try:
            self._path.replace(aside)
        except OSError:
            return f"{FILE} could not be read: {error}."
        return f"{FILE} could not be read: {error}. It is now {aside.name}, and your records start over."

    def _write(self, records: dict[str, BoardRecord]) -> str:
        text = json.dumps({name: asdict(record) for name, record in records.items()}, indent=1)
        partial = self._path.with_suffix(".partial")
        try:
            partial.write_text(text + "\n", encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            self._unsaved = records
            return (
                f"Your record lasts until the kernel stops: {FILE} could not be written ({error.strerror})."
            )
        self._unsaved = None
        return ""


def _parsed(text: str) -> dict[str, BoardRecord]:
    """Read a file of records.

    Raises:
        ValueError: it holds something else.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it holds no records")
    return {name: _record(name, fields) for name, fields in found.items()}


def _record(name: str, fields: object) -> BoardRecord:
    match fields:
        case {"best": int() | None as best, "marks": str() as marks, **rest} if not isinstance(best, bool):
            known = "".join(_known(marks))[-_MOST_MARKS:]
            told = rest.get("attempts", 0)  # which older files do not have
            return BoardRecord(best, known, max(len(known), told if isinstance(told, int) else 0))
    raise ValueError(f"the record of {name!r} is not one")


def _known(marks: str) -> Iterable[str]:
    return (mark for mark in marks if mark in (BROKEN, LEGAL, PAR))


@cache
def records_in(folder: Path) -> Records:
    """Return the one object that keeps a folder's records."""
    return Records(folder)
