"""Cells that readers run in the page: they need no package, and show what a notebook shows."""

import subprocess
import sys
from html import escape
from pathlib import Path

import pytest

from website import run_cell
from website.runnable import PAGES, pack

COURSE = Path(__file__).parents[2]
PLAYED = """
import run_cell
run_cell.run("from fourranks.puzzles import board")
print(run_cell.run('board("Two and four").play(["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"])'))
print([name for name in ("torch", "numpy", "IPython") if name in __import__("sys").modules])
"""


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    monkeypatch.setattr(run_cell, "NAMES", {})


def test_the_standard_library_and_the_packed_modules_are_enough_to_play(tmp_path):
    pack(tmp_path / "modules.zip")
    alone = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, 'modules.zip'){PLAYED}"]
    played = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert played.stderr == ""
    assert "15 ticks: that is par" in played.stdout
    assert played.stdout.endswith("[]\n")


def test_the_pages_that_run_exist():
    assert [page for page in PAGES if not (COURSE / f"{page}.ipynb").exists()] == []


def test_a_cell_shows_what_it_prints_and_the_value_of_its_last_line():
    assert (
        run_cell.run("print('a < b')\n1 + 1")
        == '<pre class="stream">a &lt; b\n</pre><pre class="stream">2</pre>'
    )


@pytest.mark.parametrize("source", ["", "# nothing", "x = 1", "None"])
def test_a_cell_without_a_value_shows_nothing(source):
    assert run_cell.run(source) == ""


def test_a_cell_knows_the_names_of_earlier_ones():
    run_cell.run("def double(x): return 2 * x")
    assert "42" in run_cell.run("double(21)")


def test_a_value_is_shown_as_in_a_notebook():
    run_cell.run("class Bold:\n    def _repr_mimebundle_(self): return {'text/html': '<b>x</b>'}")
    assert run_cell.run("Bold()") == "<b>x</b>"


def test_an_error_is_shown_from_the_cells_line_on_below_what_was_printed():
    shown = run_cell.run("print('so far')\n1 / 0")
    assert shown.index("so far") < shown.index(escape('File "<cell>", line 2'))
    assert "ZeroDivisionError" in shown
    assert "run_cell" not in shown


@pytest.mark.parametrize(("source", "name"), [("1 +", "SyntaxError"), ("exit()", "SystemExit")])
def test_what_is_no_program_or_ends_it_is_an_error_of_the_cell_alone(source, name):
    assert name in run_cell.run(source)
    assert "2" in run_cell.run("1 + 1")
