"""A class: its students' submissions, and a course's folder after the instructor's commands.

The submissions are made from the released exercise and its solution, and so follow every change of both.
"""

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from jupyter_server.serverapp import list_running_servers
from nbformat import NotebookNode

from tests.classroom import COURSE, PICTURE, answers, as_bytes, filled_in, hand_in, kill_marked, read, run
from tests.processes import started

TOPIC = "02_collectives"
NOT_IN_GIT = (".ipynb_checkpoints", "__pycache__")
NAIVE = """
def ring_all_reduce(tensor, group=None):
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    total = tensor.clone()
    for distance in range(1, world_size):
        received = torch.empty_like(tensor)
        sending = dist.isend(tensor, group_dst=(rank + distance) % world_size, group=group)
        dist.recv(received, group_src=(rank - distance) % world_size, group=group)
        sending.wait()
        total += received
    tensor.copy_(total)
"""
ENDLESS = """
import time

def all_to_all(output, input, group=None):
    while True:
        time.sleep(0.01)  # and no processor is taken from the other tests
"""
WARN = """
    import os, sys
    print("a warning of Python's", file=sys.stderr)
    os.write(2, b"a warning of a C library's")
"""


def _answers(right: dict[str, str]) -> dict[str, dict[str, str]]:
    """For each student the cells that they filled in, by name; the others stay as they were released."""
    some = {"scatter": right["scatter"]}  # must keep its points, whatever goes wrong before or after it

    def instead(name: str, old: str, new: str) -> dict[str, str]:
        assert right[name].count(old) == 1, f"the solution of {name} has no more {old!r}"
        return some | {name: right[name].replace(old, new)}

    return {
        "perfect": right,
        "warning": instead("exchange", "\n    received =", f"{WARN}    received ="),
        "naive": some | {"ring_all_reduce": NAIVE, "exchange_explained": right["exchange_explained"]},
        "odd": instead("broadcast", "while reach < world_size", "while reach < world_size // 2 * 2"),
        "stuck": instead("exchange", "both = ", "dist.send(tensor, peer)\n    both = "),
        "raising": instead("gather", "gather_list[root]", "gather_list[len(gather_list)]"),
        "dying": instead("reduce", "    return", "    import os; os._exit(3)"),
        "endless": some | {"all_to_all": ENDLESS},
        "unfinished": some | {"gather": "def gather("},
        "crashing": some | {"exchange": "import os\nos._exit(1)"},
        "copying": some,
        "untouched": {},
    }


def _submissions(released: NotebookNode, solution: NotebookNode) -> dict[str, dict[str, bytes]]:
    """The files that each student hands in."""
    handed_in = _answers(answers(solution))
    notebooks = {student: filled_in(released, cells) for student, cells in handed_in.items()}
    notebooks["copying"] = _twice(notebooks["copying"])
    notebooks["naive"] = _with_picture(notebooks["naive"], "exchange_explained")
    notebooks["forging"] = _forged(notebooks["untouched"])
    notebooks["deleting"] = _without_answers(notebooks["untouched"])
    files = {student: {"exercise.ipynb": as_bytes(notebook)} for student, notebook in notebooks.items()}
    return files | {
        "text": {"exercise.ipynb": b"See my other folder."},
        "zipped": {"exercise.ipynb": b"PK\x05\x06" + bytes(18)},
        "renamed": {"exercise (1).ipynb": as_bytes(notebooks["perfect"])},
        "missing": {"notes.txt": b"I was ill."},
    }


def _twice(notebook: NotebookNode) -> NotebookNode:
    """Every cell copied and pasted, as JupyterLab does it."""
    copies = [deepcopy(cell) | {"id": f"{cell.id}-copy"} for cell in notebook.cells]
    cells = [cell for pair in zip(notebook.cells, copies, strict=True) for cell in pair]
    return nbformat.from_dict(notebook | {"cells": cells})


def _with_picture(notebook: NotebookNode, name: str) -> NotebookNode:
    """A picture pasted behind an answer in words, as JupyterLab does it."""
    notebook = deepcopy(notebook)
    cell = next(cell for cell in notebook.cells if cell.id == name)
    cell.source += "\n\n![image.png](attachment:image.png)"
    cell.attachments = {"image.png": {"image/png": PICTURE}}
    return notebook


def _without_answers(notebook: NotebookNode) -> NotebookNode:
    """Every cell deleted that an answer belongs in."""
    cells = [cell for cell in notebook.cells if not cell.metadata.get("nbgrader", {}).get("solution")]
    return nbformat.from_dict(notebook | {"cells": cells})


def _forged(notebook: NotebookNode) -> NotebookNode:
    """Every test replaced by one that passes, for as many points as one likes."""
    notebook = deepcopy(notebook)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = "print('passed')"
            cell.metadata.nbgrader.points = 1000
            cell.metadata.nbgrader.locked = False
    return notebook


@dataclass(frozen=True)
class Classroom:
    """A course's folder in which a class was graded.

    Attributes:
        said: the output of each command.
        status: each command's exit status.
        left_behind: processes that outlived the command that started them.
    """

    folder: Path
    said: dict[str, str]
    status: dict[str, int]
    left_behind: list[psutil.Process]


@pytest.fixture(scope="module")
def grade_class(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Classroom]:
    """Grades a class of these students, by default of all, by the instructor's commands."""
    return lambda *students: _graded(tmp_path_factory.mktemp("class"), students)


def _graded(folder: Path, students: Sequence[str]) -> Classroom:
    """The results of the commands in a clone of the course."""
    _clone(folder)
    notebooks = (read(folder / kind / TOPIC / "exercise.ipynb") for kind in ("exercises", "solutions"))
    files = _submissions(*notebooks)
    files = {student: files[student] for student in students or files}
    hand_in(folder, TOPIC, files)
    (folder / "roster.csv").write_text("\n".join(["id", *files]))
    mark = uuid.uuid4().hex
    runs = {command: run(command, folder, mark) for command in _commands()}
    said = {command: done.stdout for command, done in runs.items()}
    status = {command: done.returncode for command, done in runs.items()}
    return Classroom(folder, said, status, kill_marked(mark))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the course, to be changed."""
    folder = tmp_path_factory.mktemp("clone")
    _clone(folder)
    return folder


@pytest.fixture(scope="module")
def serve_lab(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], AbstractContextManager[str]]:
    """Opens JupyterLab in a course's folder, as an instructor does; gives its address."""
    return lambda course: _served(course, tmp_path_factory.mktemp("lab"))


@contextmanager
def _served(course: Path, folder: Path) -> Iterator[str]:
    settings = {"JUPYTER_CONFIG_PATH": str(course / ".jupyter"), "JUPYTER_RUNTIME_DIR": str(folder)}
    command = ["jupyter", "lab", "--no-browser", "--port=0", "--IdentityProvider.token="]
    with (
        (folder / "log").open("w") as log,
        started(command, cwd=course, env=os.environ | settings, stdout=log, stderr=log) as server,
    ):
        try:
            while not (listening := [each for each in list_running_servers(str(folder)) if _listens(each)]):
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield listening[0]["url"]
        finally:
            server.terminate()


def _listens(server: dict) -> bool:
    """Tell whether a server answers: its file may be written before it listens."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", server["port"]), timeout=1):
        return True
    return False


def _commands() -> list[str]:
    """The README's commands for instructors, with a roster besides; .venv is where these tests run."""
    section = (COURSE / "README.md").read_text().split("## For instructors")[1].split("\n## ")[0]
    lines = [line.partition("#")[0].strip() for line in section.splitlines() if line.startswith("    ")]
    make_build, generate_assignment, *others = lines
    assert make_build == "make build"
    commands = ["autograder build", generate_assignment, "nbgrader db student import roster.csv", *others]
    return [command.removeprefix(".venv/bin/") for command in commands]


def _clone(folder: Path) -> None:
    for name in ("source", "lectures", "exercises", "solutions", ".jupyter"):
        shutil.copytree(COURSE / name, folder / name, ignore=shutil.ignore_patterns(*NOT_IN_GIT))
    for notebook in (folder / "source").glob("*/*.ipynb"):
        notebook.unlink()
    for name in ("index.md", "nbgrader_config.py"):
        shutil.copy(COURSE / name, folder)
