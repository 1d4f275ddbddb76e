"""The command that grades a class: its messages, and the things that it refuses.

A class is graded in `tests/class/test_grade.py`.
"""

import contextlib
import fcntl
import os
import resource
import shutil
import sqlite3
import sys

import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.api import Gradebook

from autograder.cli import main
from autograder.grading import gradebook, progress_line
from autograder.grading.grade_submission import Submission, grade_submission
from autograder.grading.records import Terms
from fourranks import landlock
from tests.classroom import COURSE, as_bytes, hand_in

# --- progress ---------------------------------------------------------------------------------------------


def test_progress_says_how_many_how_fast_how_long_and_who_is_slow():
    said = progress_line.line(37, 300, 37, 540.0, {"ada": 12.0, "bob": 48.2})
    assert said == "37/300 · 4.1 a minute · 1:03:58 left · longest: bob 0:48"


def test_what_was_on_record_does_not_make_it_look_fast():
    assert progress_line.line(250, 300, 0, 3.0, {}) == "250/300"
    assert progress_line.line(252, 300, 2, 60.0, {}) == "252/300 · 2.0 a minute · 24:00 left"


# --- what cannot be graded --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A course with one assignment, `ps1`, that nobody has handed in."""
    folder = tmp_path_factory.mktemp("empty") / "course"
    for assignment in ("ps1", "ps2"):
        (folder / "source" / assignment).mkdir(parents=True)
    shutil.copy(COURSE / gradebook.SETTINGS, folder)
    fields = {"grade": True, "locked": True, "points": 1, "solution": False, "schema_version": 3}
    test = new_code_cell("check.scatter(scatter)", metadata={"nbgrader": {"grade_id": "scattered"} | fields})
    (folder / "source" / "ps1" / "exercise.ipynb").write_bytes(as_bytes(new_notebook(cells=[test])))
    with Gradebook(f"sqlite:///{folder}/gradebook.db", "fourranks") as book:
        book.add_assignment("ps1")
        book.add_notebook("exercise", "ps1")
        book.add_grade_cell("scattered", "exercise", "ps1", max_score=1, cell_type="code")
    return folder


@pytest.fixture
def course(empty, tmp_path, monkeypatch):
    """A copy of it, as the current folder."""
    copy = shutil.copytree(empty, tmp_path / "course")
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def refused(course, capsys):
    """The command's message when it refuses."""

    def run(command):
        assert main(command.split()) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        return said.err

    return run


@pytest.mark.parametrize("command", ["grade", "report"])
def test_an_unknown_assignment_is_answered_with_those_that_exist(refused, command):
    assert "no assignment ps7. The course has ps1." in refused(f"{command} ps7")


def test_an_assignment_that_the_gradebook_does_not_know_says_how_to_tell_it(refused):
    assert "`nbgrader generate_assignment ps2`" in refused("grade ps2")


def test_another_folder_is_no_course(refused, course, monkeypatch):
    monkeypatch.chdir(course / "source")
    assert "course's top folder" in refused("grade ps1")


@pytest.mark.parametrize("command", ["grade", "report"])
def test_an_instructors_notebook_that_is_not_whole_is_named(refused, course, command):
    hand_in(course, "ps1", {"ada": {"exercise.ipynb": b"{}"}})
    notebook = course / "source" / "ps1" / "exercise.ipynb"
    notebook.write_bytes(notebook.read_bytes()[:99])
    said = refused(f"{command} ps1")
    assert said.startswith(f"{notebook} is not a notebook") and "run `make build`" in said


def test_a_course_whose_path_nbgrader_takes_for_a_pattern_says_so(refused, course, monkeypatch):
    monkeypatch.chdir(course.rename(course.with_name("course [2026]")))
    assert "nbgrader takes [, * and ? for patterns: rename a folder in" in refused("grade ps1")


def test_a_student_whom_nbgrader_takes_for_a_pattern_is_named_and_not_run(course):
    hand_in(course, "ps1", {"ada [2]": {"exercise.ipynb": b"{}"}})
    folder = course / "submitted" / "ada [2]"
    one = Submission(course, folder / "ps1", "ps1", "ada [2]", ("exercise",), Terms())
    assert grade_submission(one).problem == f"nbgrader takes [, * and ? for patterns: rename {folder}"


@pytest.mark.parametrize("name", ["a name on\ntwo lines", os.fsdecode("André".encode("latin-1"))])
def test_a_student_whose_name_nbgrader_cannot_take_is_named_and_not_run(course, name):
    hand_in(course, "ps1", {name: {"exercise.ipynb": b"{}"}})
    one = Submission(course, course / "submitted" / name / "ps1", "ps1", name, ("exercise",), Terms())
    assert "not UTF-8: rename" in grade_submission(one).problem
    gradebook.Class(course, "ps1").note(name)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no exercise.ipynb, and nothing else"),
        ({"mine (2).ipynb": b"{}"}, "but mine (2).ipynb: give the notebook that counts this name"),
    ],
)
def test_who_has_handed_in_no_notebook_of_that_name_is_named_with_what_is_there(course, files, said):
    hand_in(course, "ps1", {"ada": files})
    folder = course / "submitted" / "ada" / "ps1"
    folder.mkdir(parents=True, exist_ok=True)
    one = Submission(course, folder, "ps1", "ada", ("exercise",), Terms())
    assert grade_submission(one).problem.endswith(said)


def test_a_gradebook_that_cannot_grow_is_named_in_a_line(course, capfd):
    own, limits = gradebook.Class(course, "ps1"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # as if the disk was full
    try:
        own.note("ada")
        with pytest.raises(gradebook.ClassError) as raised, own.open() as opened:
            opened.add_student("ada")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot be used (" in str(raised.value) and len(str(raised.value).splitlines()) == 1
    assert "Traceback" not in capfd.readouterr().err


def test_a_gradebook_that_another_program_locks_meanwhile_is_called_that(course):
    hand_in(course, "ps1", {"ada": {"exercise.ipynb": as_bytes(new_notebook())}})
    own = gradebook.Class(course, "ps1")
    with contextlib.closing(sqlite3.connect(course / "gradebook.db")) as another:
        another.execute("BEGIN EXCLUSIVE")
        said = own.enter("ada", {}, {})
    assert said.endswith("database is locked") and "\n" not in said


def test_it_says_when_nobody_has_handed_in_anything(refused):
    assert "There is no submission of ps1" in refused("grade ps1")


def test_an_unknown_student_is_answered_with_those_who_handed_in(refused, course):
    hand_in(course, "ps1", {"ada": {}, "bob": {}})
    assert "eve did not hand in ps1. These did: ada, bob." in refused("grade ps1 --students ada,eve")


@pytest.mark.parametrize("handed_in", [["12345", "12346"], ["12345", "ada@uni.example"]])
def test_a_roster_that_names_nobody_who_has_handed_in_is_compared(course, capsys, handed_in):
    hand_in(course, "ps1", {name: {} for name in handed_in})
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as book:
        for name in ("ada@uni.example", "bob@uni.example"):
            book.add_student(name)
    main(["grade", "ps1", "--only", "no_such_check"])
    said = "their ids are ada@uni.example, bob@uni.example, and the folders in submitted/ are 12345, 12346."
    assert (said in capsys.readouterr().err) == (handed_in == ["12345", "12346"])


def test_an_unknown_check_is_answered_with_those_that_exist(refused, course):
    hand_in(course, "ps1", {"ada": {}})
    assert "no check gather. It has scatter, scattered." in refused("grade ps1 --only gather")


def test_a_question_that_was_added_says_how_to_tell_the_gradebook(refused, course):
    hand_in(course, "ps1", {"ada": {}})
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as book:
        book.remove_notebook("exercise", "ps1")
        book.add_notebook("exercise", "ps1")
    said = refused("grade ps1")
    assert (
        "does not know questions of ps1: scattered. Run `nbgrader generate_assignment ps1 --force`." in said
    )
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as book:
        book.add_student("ada")
        book.add_submission("ps1", "ada")
    said = refused("grade ps1")
    assert "`nbgrader db assignment remove ps1 --force`, then" in said and "comments of yours: write" in said


@pytest.mark.parametrize("command", ["grade", "report"])
def test_a_gradebook_that_is_none_is_named(refused, course, command):
    (course / "gradebook.db").write_text("junk " * 1_000)
    assert "gradebook.db cannot be used (file is not a database)" in refused(f"{command} ps1")


@pytest.mark.parametrize("command", ["grade", "report"])
def test_a_typing_error_in_the_settings_is_named_with_its_line(refused, course, command):
    (course / gradebook.SETTINGS).write_text("c = get_config()\nc.Foo = (\n")
    assert "nbgrader_config.py cannot be read: SyntaxError" in (said := refused(f"{command} ps1"))
    assert "line 2" in said


def test_a_course_that_cannot_be_written_to_is_named(refused, course):
    hand_in(course, "ps1", {"ada": {}})
    (course / "refereed").write_text("a file where a folder has to be")
    assert f"a file that it needs: [Errno 17] File exists: '{course}/refereed'" in refused("grade ps1")


def test_without_bubblewrap_it_says_what_to_install_where_that_tier_is_asked_for(
    refused, course, monkeypatch
):
    hand_in(course, "ps1", {"ada": {}})
    monkeypatch.setenv("PATH", str(course))
    assert "apt install bubblewrap" in refused("grade ps1 --tier namespaces")


def test_nccl_without_a_gpu_is_refused_with_the_reason(refused, course, program, monkeypatch):
    program("bwrap")
    hand_in(course, "ps1", {"ada": {}})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    said = refused("grade ps1 --backend nccl")
    assert "This machine cannot grade on NCCL. NCCL needs a GPU: 2 ranks were asked for" in said


def test_nccl_is_refused_in_a_sandbox_that_cannot_have_gpus(refused, course):
    hand_in(course, "ps1", {"ada": {}})
    assert "needs the sandbox with namespaces" in refused("grade ps1 --backend nccl --no-sandbox")


def test_without_any_sandbox_it_says_what_each_needs(refused, course, monkeypatch):
    hand_in(course, "ps1", {"ada": {}})
    monkeypatch.setattr(landlock, "version", lambda: 0)
    said = refused("grade ps1")
    assert (
        "Ranks are kept apart by Landlock" in said and "Without namespaces, grading takes Linux 5.19" in said
    )


def test_a_course_is_graded_once_at_a_time(refused, course, program):
    program("bwrap")
    hand_in(course, "ps1", {"ada": {}})
    (course / "refereed").mkdir()
    with (course / "refereed" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "Another `autograder grade` is grading" in refused("grade ps1")


def test_a_time_of_any_length_is_not_read(course):
    hand_in(course, "ps1", {"ada": {"timestamp.txt": b"9" * 1_000}})
    said = gradebook.Class(course, "ps1").enter("ada", {}, {})
    assert said.startswith("timestamp.txt is too long for a time: write it as 2026-12-01 23:59:00 UTC")


@pytest.mark.parametrize(
    "time", ["2026-12-01 23:59:00 +0200", "2026-12-01 11:59 PM", "2026-12-01 23:59 CEST"]
)
def test_a_time_of_which_nbgrader_would_misread_the_zone_is_refused(course, time):
    hand_in(course, "ps1", {"ada": {"timestamp.txt": time.encode()}})
    said = gradebook.Class(course, "ps1").enter("ada", {}, {})
    zone = time.split()[-1]
    assert said.startswith(f"timestamp.txt has a time zone that nbgrader does not know, {zone}: write it as")


def test_there_is_no_report_before_there_are_grades(refused):
    assert "run `autograder grade ps1` first" in refused("report ps1")


# --- on a cluster; `make cluster` has one -----------------------------------------------------------------


def test_without_ray_it_says_what_to_install(refused, course, monkeypatch):
    hand_in(course, "ps1", {"ada": {}})
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "autograder.grading.on_ray", raising=False)
    assert "needs ray: pip install 'fourranks[ray]'" in refused("grade ps1 --on ray")


def test_gpus_are_asked_of_a_cluster_only(refused):
    assert "add --on ray" in refused("grade ps1 --gpus-per-submission 4")


@pytest.mark.parametrize("names", ["", ","])
def test_no_students_are_too_few(capsys, names):
    with pytest.raises(SystemExit):
        main(["grade", "ps1", "--students", names])
    assert "name at least one student" in capsys.readouterr().err


def test_without_a_home_it_says_what_to_set(refused, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 54321)  # a user without an entry in the list of users
    assert "set the environment variable HOME" in refused("grade ps1")


def test_no_jobs_are_too_few(capsys):
    with pytest.raises(SystemExit):
        main(["grade", "ps1", "--jobs", "0"])
    assert "'0' is not a whole number from 1 on" in capsys.readouterr().err
