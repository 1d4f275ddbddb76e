"""A line of the reader's code, as it is named; and whose code a line is."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading
from pathlib import Path

import pytest
import torch

from fourranks.protocol.places import cells_among, place
from fourranks.rank.frames import caller, count_as_library, own_caller, pass_over

CELL = "<ipython-input-7-0123456789ab>"


@pytest.fixture
def cell():
    text = "one()\nif rank: two()\n"
    linecache.cache[CELL] = (len(text), None, text.splitlines(keepends=True), CELL)
    yield text
    del linecache.cache[CELL]
    place.cache_clear()


def test_a_line_of_a_cell_is_named_by_the_number_of_the_cell(cell):
    assert str(place(CELL, 2, "<module>")) == "Cell In[7], line 2: if rank: two()"


def test_a_line_of_a_file_is_named_by_the_file():
    assert str(place(__file__, 1, "<module>")).startswith("test_places.py, line 1: ")


def test_what_has_no_file_is_named_by_its_function():
    assert str(place("", 0, "backward")) == "backward"


def test_the_text_of_cells_is_told_and_that_of_files_is_not(cell):
    assert cells_among([CELL, __file__, ""]) == {CELL: cell}


def _ask_in(folder: Path, text: str):
    """The result of `caller` when a function of a module in this folder calls it."""
    folder.mkdir(parents=True)
    module = folder / "module.py"
    module.write_text(text)
    names = {"caller": caller, "own_caller": own_caller, "sys": sys, "contextlib": contextlib}
    exec(compile(text, module, "exec"), names)
    return names["ask"]


def test_a_library_stands_behind_the_line_that_called_it(tmp_path):
    ask = _ask_in(tmp_path / "site-packages" / "metrics", "def ask():\n    return caller(sys._getframe())\n")
    found = ask()
    assert (found.at.file, found.at.function) == (
        __file__,
        "test_a_library_stands_behind_the_line_that_called_it",
    )
    assert found.through == "metrics/module.py, line 2 (ask)"


@pytest.mark.parametrize("name", ["torchmetrics", "torchvision"])
def test_a_library_beside_torch_whose_name_begins_as_torchs_is_a_library(name):
    beside = Path(torch.__file__).parents[1] / name / "module.py"
    names = {"caller": caller, "sys": sys}
    exec(compile("def ask():\n    return caller(sys._getframe())\n", beside, "exec"), names)
    found = names["ask"]()
    assert (found.at.file, found.through) == (__file__, f"{name}/module.py, line 2 (ask)")


def test_pythons_own_modules_are_passed_over(tmp_path):
    text = (
        "@contextlib.contextmanager\ndef asked(found):\n    found.append(caller(sys._getframe()))\n"
        "    yield\n\n"
        "def ask():\n    found = []\n    with asked(found):\n        return found[0]\n"
    )
    found = _ask_in(tmp_path / "own", text)()
    assert (found.at.line, found.at.function, found.through) == (3, "asked", "")
    assert [line.function for line in found.callers[:2]] == [
        "ask",
        "test_pythons_own_modules_are_passed_over",
    ]


def test_what_torch_calls_of_pythons_own_does_not_name_a_thread_of_no_readers_code(tmp_path):
    text = (
        "@contextlib.contextmanager\ndef asked(found):\n    found.append(caller(sys._getframe()))\n"
        "    yield\n\n"
        "def ask(found):\n    with asked(found): pass\n"
    )
    ask, found = _ask_in(tmp_path / "like torch", text), []
    pass_over(tmp_path / "like torch")
    thread = threading.Thread(target=ask, args=[found])
    thread.start()
    thread.join()
    assert found[0].at.file == threading.__file__


def test_callers_that_are_remembered_are_told_apart_by_line_and_by_function():
    def ask():
        return own_caller(sys._getframe()), caller(sys._getframe())

    def ask_by_another():
        first = ask()
        return first, ask()

    pairs = [*ask_by_another(), *ask_by_another(), ask()]
    assert all(own.at == found.at and own.callers[1:] == found.callers[1:] for own, found in pairs)
    lines = [own.callers[0].line for own, _ in pairs]
    assert lines[0] + 1 == lines[1] and lines[:2] == lines[2:4]
    assert pairs[3][0].callers[0].function == "ask_by_another"
    assert pairs[4][0].callers[0].function.startswith("test_callers")


def test_a_caller_is_judged_anew_when_its_file_turns_out_to_be_a_librarys(tmp_path):
    folder = tmp_path / "course"
    ask = _ask_in(folder, "def ask():\n    return own_caller(sys._getframe())\n")
    assert ask().at.file == str(folder / "module.py")
    count_as_library(folder)
    assert ask().at.file == __file__
    assert ask().through == "", "nobody can look into it"
