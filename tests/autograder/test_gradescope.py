"""Gradescope's zip, in folders as Gradescope lays them out, and with the rights that a container leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograder import cli
from autograder.grading import gradescope, machine, outputs
from autograder.sandbox import tiers
from autograder.sandbox.tiers import Tier
from tests.autograder.test_score import RIGHT, WRONG

COURSE = Path(__file__).parents[2]
HIDDEN = """check.attainable_flops(attainable_flops)
### BEGIN HIDDEN TESTS
check.attainable_flops(attainable_flops, seed=4711)
### END HIDDEN TESTS"""


def _test(name: str, source: str, points: int):
    fields = {"grade_id": name, "grade": True, "locked": True, "solution": False, "points": points}
    return new_code_cell(source, id=name, metadata={"nbgrader": fields})


def _answer(source: str):
    fields = {"grade_id": "attainable_flops", "grade": False, "locked": False, "solution": True}
    return new_code_cell(source, id="attainable_flops", metadata={"nbgrader": fields})


TESTS = [
    _test("flops_check", HIDDEN, 4),
    _test("plain_check", "assert attainable_flops(1.0, 2.0, 3.0) == 2.0", 1),
]


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A course with one assignment."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("autograder", "fourranks", "README.md", "pyproject.toml", "requirements.txt"):
        (folder / name).symlink_to(COURSE / name)
    (folder / "source/ps1").mkdir(parents=True)
    nbformat.write(new_notebook(cells=[_answer(""), *TESTS]), folder / "source/ps1/exercise.ipynb")
    return folder


@pytest.fixture
def root(course, tmp_path, monkeypatch) -> Path:
    """The folder /autograder there, when the image has been built."""
    monkeypatch.chdir(course)
    assert cli.main(["bundle", "--gradescope", "ps1", str(tmp_path)]) == 0
    for name in ("source", "submission", "results"):
        (tmp_path / name).mkdir()
    with ZipFile(tmp_path / "gradescope_ps1.zip") as archive:
        for entry in archive.infolist():
            os.chmod(archive.extract(entry, tmp_path / "source"), entry.external_attr >> 16)
    python = tmp_path / "source/course/.venv/bin/python"  # as setup.sh makes one
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def _run(root: Path, contained: bool = False) -> subprocess.CompletedProcess:
    command = [str(root / "source/run_autograder")]
    if contained:
        command = [sys.executable, str(COURSE / "tests/docker_default.py"), *command]
    environment = os.environ | {"GRADESCOPE_ROOT": str(root), "PYTHONPATH": str(root / "source/course")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


def _graded(root: Path, answer: str, **how: bool) -> dict:
    notebook = new_notebook(cells=[_answer(answer), *TESTS])
    nbformat.write(notebook, root / "submission/my exercise (1).ipynb")
    ran = _run(root, **how)
    assert ran.returncode == 0, ran.stderr
    return json.loads((root / "results/results.json").read_text())


def test_the_zip_has_the_scripts_at_its_top_and_no_other_assignment(root):
    with ZipFile(root / "gradescope_ps1.zip") as archive:
        names = archive.namelist()
    assert {"setup.sh", "run_autograder"} <= set(names)
    assert [name for name in names if "/source/" in name] == ["course/source/ps1/exercise.ipynb"]
    assert all(os.access(root / "source" / name, os.X_OK) for name in ("setup.sh", "run_autograder"))


def test_points_wait_for_the_instructor_and_the_tests_that_students_have_do_not(root):
    results = _graded(root, RIGHT)
    found = {test["name"]: test for test in results["tests"]}
    assert [(name, test["score"], test["max_score"], test["visibility"]) for name, test in found.items()] == [
        ("flops_check (the tests that you have)", 0, 0, "visible"),
        ("flops_check", 4, 4, "after_published"),
        ("plain_check", 1, 1, "visible"),
    ]
    assert {test["status"] for test in results["tests"]} == {"passed"}
    assert results["stdout_visibility"] == "hidden" and "4711" not in json.dumps(results)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as who runs in a container is")
def test_in_a_container_s_default_it_grades_in_the_second_tier_and_shows_the_table(root):
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    results = _graded(root, WRONG, contained=True)
    preview, hidden, plain = results["tests"]
    assert [test["score"] for test in results["tests"]] == [0, 0, 0]
    assert (
        preview["status"] == "failed"
        and preview["output_format"] == "html"
        and "attainable_flops" in preview["output"]
    )
    assert "AssertionError" in plain["output"]
    assert results["output"].endswith("landlock (without namespaces).")


def test_a_test_that_ranks_a_class_shows_what_it_says_and_no_table():
    shown = [outputs.cost(1.5), outputs.printed("strategy: passed, cost 1.5")]
    assert gradescope._shown(shown) == ("text", "strategy: passed, cost 1.5")


def test_without_the_notebook_students_read_what_to_upload(root, course, monkeypatch):
    monkeypatch.setenv(gradescope.ROOT, str(root))
    (root / "submission/notes.txt").write_text("I was ill.")
    assert gradescope.main(course, "ps1") == ""
    results = json.loads((root / "results/results.json").read_text())
    assert results["score"] == 0 and "has none of its questions: 'notes.txt'" in results["output"]


def test_names_of_files_are_shown_visibly_and_no_longer_than_people_read(root, course, monkeypatch):
    monkeypatch.setenv(gradescope.ROOT, str(root))
    with ZipFile(root / "submission/work.zip", "w") as archive:
        archive.writestr("\x1b[2J\u202e" + "y" * 60_000, "")
    assert gradescope.main(course, "ps1") == ""
    output = json.loads((root / "results/results.json").read_text())["output"]
    assert "\\x1b[2J\\u202ey" in output and output.isprintable() and len(output) < 1_000


def test_a_zip_that_cannot_be_unpacked_is_named_with_the_reason(root, course, monkeypatch):
    monkeypatch.setenv(gradescope.ROOT, str(root))
    (root / "submission/work.zip").write_text("cut off")
    assert gradescope.main(course, "ps1") == ""
    results = json.loads((root / "results/results.json").read_text())
    assert "work.zip cannot be unpacked: BadZipFile" in results["output"]


def test_of_two_notebooks_the_student_reads_which_one_counts(root):
    nbformat.write(new_notebook(cells=[_answer(WRONG), *TESTS]), root / "submission/draft.ipynb")
    results = _graded(root, RIGHT)
    assert "counts, not " in results["output"].splitlines()[0]
    assert "draft.ipynb" in results["output"].splitlines()[0]


def test_a_file_that_is_no_notebook_is_called_what_the_student_called_it(root, course, monkeypatch):
    monkeypatch.setenv(gradescope.ROOT, str(root))
    (root / "submission/exercise.ipynb").write_text('{"cells": [')
    assert gradescope.main(course, "ps1") == ""
    results = json.loads((root / "results/results.json").read_text())
    assert results["output"].startswith("exercise.ipynb is not a notebook")


def test_with_too_little_memory_it_grades_nobody_and_says_what_to_set(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(f"{768 << 20}\n")
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "PROCESS_CGROUPS", tmp_path / "own")
    monkeypatch.setenv(gradescope.ROOT, str(tmp_path))
    said = gradescope.main(COURSE, "02_collectives")
    assert "has 0.81" in said and "Container Specifications" in said
    assert not (tmp_path / "results").exists()


def test_an_unknown_assignment_is_named(course, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(course)
    assert cli.main(["bundle", "--gradescope", "ps9", str(tmp_path)]) == 1
    assert "ps9" in capsys.readouterr().err
