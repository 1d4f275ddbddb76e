"""Folders that a student may have made, however many lie in one another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path


def walk(
    top: Path, onerror: Callable[[OSError], None] = lambda error: None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder from the top down, as `os.walk` does: its path, names of folders, other names.

    Before Python 3.12 `os.walk` and `Path.rglob` call themselves for each folder in a folder, which ends in a
    RecursionError. Links count as files.
    """
    left = [os.fspath(top)]
    while left:
        place = left.pop()
        folders: list[str] = []
        others: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        except OSError as error:
            onerror(error)
            continue
        yield place, folders, others
        left += [os.path.join(place, name) for name in reversed(folders)]
