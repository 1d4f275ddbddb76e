"""The files that a lecture keeps beside its notebook: predictions, and losses for the next lecture to draw.

A file has a record a line and only grows: two notebooks that write at once lose nothing, a damaged line costs
no other, and for each key the last record counts. It lies in a hidden folder beside the notebook; neighbours
read it, too. Where a folder cannot be written, records last as long as the kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = ".fourranks"
NEIGHBOURS = f"[0-9][0-9]_*/{FOLDER}"  # folders of the course's topics


class Journal:
    """Records of one kind: for each key, a dictionary."""

    def __init__(self, name: str) -> None:
        self.file_name = f"{name}.jsonl"
        self._of_this_kernel: dict[str, dict[str, Any]] = {}

    def keep(self, key: str, record: dict[str, Any]) -> None:
        """Add a record, in place of an earlier one with its key."""
        line = json.dumps({"key": key, "record": record}, default=str)
        self._of_this_kernel[key] = json.loads(line)["record"]  # as other kernels will find it
        folder = Path.cwd() / FOLDER
        try:
            folder.mkdir(exist_ok=True)
            with (folder / self.file_name).open("a", encoding="utf-8") as file:
                file.write(f"\n{line}\n")  # an entry that broke off before ends at the line break
        except OSError:
            pass  # a folder that cannot be written: this kernel still has it

    def records(self) -> dict[str, dict[str, Any]]:
        """Return what this notebook and its neighbours keep, by key."""
        here = Path.cwd()
        folders = [*sorted(here.parent.glob(NEIGHBOURS)), here / FOLDER]
        return dict(_read(folder / self.file_name for folder in folders)) | self._of_this_kernel


def _read(paths: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            match found:
                case {"key": str(key), "record": dict(record)}:
                    yield key, record
