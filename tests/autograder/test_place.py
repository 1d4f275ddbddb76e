"""On a fresh clone the notebooks that nbgrader reads are made from their text; nothing else is touched."""

import shutil
from pathlib import Path

import nbformat
import pytest

from autograder.notebooks import source
from autograder.notebooks.place import place_missing
from tests.classroom import COURSE

TOPIC = "01_hardware_hierarchy"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "source" / TOPIC).mkdir(parents=True)
    shutil.copy(COURSE / "source" / TOPIC / "exercise.py", tmp_path / "source" / TOPIC)
    return tmp_path


def test_a_missing_notebook_is_made_from_its_text(course):
    place_missing(course)
    folder = course / "source" / TOPIC
    made = nbformat.read(folder / "exercise.ipynb", as_version=4)
    assert made.cells == source.read(folder / "exercise.py", "exercise.py").cells
    assert (folder / "exercise.ipynb").stat().st_mtime == (folder / "exercise.py").stat().st_mtime
    assert sorted(path.name for path in folder.iterdir()) == ["exercise.ipynb", "exercise.py"]


def test_a_notebook_that_is_there_is_left_alone(course):
    (course / "source" / TOPIC / "exercise.ipynb").write_text("an instructor's")
    place_missing(course)
    assert (course / "source" / TOPIC / "exercise.ipynb").read_text() == "an instructor's"


def test_a_text_with_a_mistake_is_said_and_stops_nothing(course, capsys):
    (course / "source" / TOPIC / "exercise.py").write_text("# %%\n### BEGIN SOLUTION\n")
    place_missing(course)
    assert "exercise.ipynb could not be made" in capsys.readouterr().err
    assert not (course / "source" / TOPIC / "exercise.ipynb").exists()
