"""How a line of the reader's code is named, and the text that the notebook needs to read around it."""

from __future__ import annotations

import functools
import linecache
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MAX_SOURCE = 200_000  # characters of all cells that a report takes along
OUTSIDE = "outside of your code"  # stands for a line where a rank is in none of the reader's

_CELL_FILE = re.compile(r"<ipython-input-(\d+)-")


class NotebookCell(NamedTuple):
    """A cell that ran in the notebook itself; ranks call functions that it has defined."""

    name: str  # "Cell In[3]"
    text: str


_cells_of_the_notebook: dict[str, NotebookCell] = {}  # by file


class Line(NamedTuple):
    """One line of the reader's code, by its number in a file."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Place:
    """The same in words, as a reader is told of it."""

    label: str  # "Cell In[3], line 4"
    text: str = ""  # "dist.barrier()"

    def __str__(self) -> str:
        return f"{self.label}: {self.text}" if self.text else self.label


@functools.lru_cache(maxsize=1024)
def place(file: str, line: int, function: str) -> Place:
    """Return the place of a line of a cell or a file."""
    lines = linecache.getlines(file)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Place(label_of(Line(file, line, function)), text)


def label_of(line: Line) -> str:
    """Name a line of a cell or a file; the file is not opened."""
    if name := cell_name(line.file):
        return f"{name}, line {line.line}"
    return f"{os.path.basename(line.file)}, line {line.line}" if line.file else line.function


def cell_name(file: str) -> str:
    """Return the name of the cell that a file's name stands for; "" if it stands for none."""
    if cell := _CELL_FILE.match(file):
        return f"Cell In[{cell[1]}]"
    return _cells_of_the_notebook[file].name if file in _cells_of_the_notebook else ""


def know_cells(cells: Mapping[str, NotebookCell]) -> None:
    """Have this process name these cells of the notebook, and show their lines, from now on."""
    news = {file: cell for file, cell in cells.items() if _cells_of_the_notebook.get(file) != cell}
    _cells_of_the_notebook.update(news)
    for file, cell in news.items():
        show_lines_of(file, cell.text)


def show_lines_of(file: str, text: str) -> None:
    """Have tracebacks and places show lines of this text, which is in no file, by the name of one."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    place.cache_clear()


def cells_among(files: Iterable[str]) -> dict[str, str]:
    """Return the text of those of these files that are cells, which the notebook cannot read from a disk."""
    texts: dict[str, str] = {}
    for file in files:
        if _CELL_FILE.match(file) and sum(map(len, texts.values())) < MAX_SOURCE:
            texts[file] = "".join(linecache.getlines(file))[:MAX_SOURCE]
    return texts
