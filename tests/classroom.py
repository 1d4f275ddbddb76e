"""Helpers of the tests that grade a class: notebooks to hand in, and nbgrader's commands to run."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

from autograder.notebooks.marked_processes import marked
from tests import processes
from tests.processes import Command

COURSE = Path(__file__).parents[1]
MARK = "FOURRANKS_CLASS"  # environment variable by which all that grading has started is found
PICTURE = (  # a PNG of one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def as_bytes(notebook: NotebookNode) -> bytes:
    return nbformat.writes(notebook).encode()


def answers(solution: NotebookNode) -> dict[str, str]:
    """The cells of a solved notebook that students fill in, by name."""
    return {
        cell.id: cell.source for cell in solution.cells if cell.metadata.get("nbgrader", {}).get("solution")
    }


def filled_in(released: NotebookNode, cells: dict[str, str]) -> NotebookNode:
    """A submission with these cells, by name; the others stay as they were released."""
    notebook = deepcopy(released)
    for cell in notebook.cells:
        cell.source = cells.get(cell.id, cell.source)
    return notebook


def hand_in(course: Path, topic: str, files: dict[str, dict[str, bytes]]) -> None:
    """Put each student's files where nbgrader looks for them."""
    for student, contents in files.items():
        submitted = course / "submitted" / student / topic
        submitted.mkdir(parents=True)
        for name, content in contents.items():
            (submitted / name).write_bytes(content)


def make_folders(top: Path, name: str, depth: int) -> None:
    """Make folders in one another, with a file in the last: their path may be longer than Linux takes."""
    place = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=place)
        within = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = within
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)


@contextlib.contextmanager
def folders(top: Path, name: str, depth: int) -> Iterator[None]:
    """Make the same, and remove them in the end: pytest does it by Python, which may not get that deep."""
    make_folders(top, name, depth)
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", top / name], check=True)


def run(
    command: str, course: Path, mark: str, way: Callable[[Command], Command] = list
) -> subprocess.CompletedProcess:
    """Run an instructor's command, by default as in a terminal; it and all that it starts carry the mark."""
    return processes.run(
        way(command.split()),
        cwd=course,
        env=os.environ | {MARK: mark},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )


def kill_marked(mark: str) -> list[psutil.Process]:
    """The processes that still carry the mark; they do not outlive the tests."""
    found = list(marked(MARK, mark))
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return found


def still_running(processes: list[psutil.Process], seconds: float = 20) -> list[psutil.Process]:
    """Those that have not ended after so long; an orphan that nobody collects has ended."""
    deadline = time.monotonic() + seconds
    while (left := [each for each in processes if _runs(each)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
