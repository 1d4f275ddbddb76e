"""A class is graded with one command: in parallel, stopped in the middle, again after changes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from nbgrader.api import Gradebook

from autograder.grading.submission import HIDDEN
from autograder.notebooks.source import read as read_text
from tests.classroom import (
    COURSE,
    MARK,
    answers,
    as_bytes,
    filled_in,
    hand_in,
    kill_marked,
    read,
    run,
    still_running,
)
from tests.processes import in_the_background, started

pytestmark = pytest.mark.timeout(1200)  # the class is graded twice

TOPIC = "02_collectives"
QUESTIONS = ("exchange", "scatter", "gather")  # of the exercise, and the first one's in words
CELLS = {"setup", "exchange_explained", *QUESTIONS, *(f"{name}_check" for name in QUESTIONS)}
GRADE = f"{sys.executable} -m autograder grade {TOPIC} --jobs 2"
DESERVED = """
    perfect  6  6  6  ?
    wrong    6  6  0  0
    late     0  6  0  0
    ended    0  0  6  0
"""
ROWS = {student: points for student, *points in map(str.split, DESERVED.strip().splitlines())}
COLUMNS = ("exchange_check", "scatter_check", "gather_check", "exchange_explained")


def _submissions(released, solution):
    right = answers(solution)
    wrong = right["gather"].replace("gather_list[root]", "gather_list[root + 99]")
    cells = {
        "perfect": right,
        "wrong": {"exchange": right["exchange"], "scatter": right["scatter"], "gather": wrong},
        "late": {"scatter": right["scatter"]},
        "ended": {"exchange": "import os\nos._exit(0)", "gather": right["gather"]},
    }
    notebooks = {student: filled_in(released, own) for student, own in cells.items()}
    mended = notebooks["wrong"]
    mended.cells = [cell for cell in mended.cells if cell.id != "exchange_check"]
    files = {student: {"exercise.ipynb": as_bytes(notebook)} for student, notebook in notebooks.items()}
    files["late"]["timestamp.txt"] = b"2026-02-01 12:00:00 UTC"
    return files | {
        "text": {"exercise.ipynb": b"See my other folder."},
        "empty": {"notes\x1b[31m.txt": b"I was ill."},
    }


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory, program):
    """A course in which a class has handed in an exercise of three questions."""
    program("bwrap")
    course = tmp_path_factory.mktemp("course")
    source = read_text(COURSE / "source" / TOPIC / "exercise.py", "exercise.py")
    source.cells = [cell for cell in source.cells if cell.id in CELLS]
    for cell in source.cells:
        cell.source = HIDDEN.sub("", cell.source)  # they take time, and find nothing more
    (course / "source" / TOPIC).mkdir(parents=True)
    nbformat.write(source, course / "source" / TOPIC / "exercise.ipynb")
    settings = (COURSE / "nbgrader_config.py").read_text()
    settings += 'c.LateSubmissionPlugin.penalty_method = "zero"\n'
    (course / "nbgrader_config.py").write_text(settings)
    assert run(f"nbgrader generate_assignment {TOPIC}", course, "").returncode == 0
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        gradebook.update_or_create_assignment(TOPIC, duedate="2026-01-31 12:00:00 UTC")
    released = read(course / "exercises" / TOPIC / "exercise.ipynb")
    hand_in(course, TOPIC, _submissions(released, source))
    return course


@dataclass
class Graded:
    """A course after the command.

    Attributes:
        said: the output of the last command.
        left_behind: processes that outlived the commands.
    """

    folder: Path
    status: int
    said: str
    left_behind: list[psutil.Process]


@pytest.fixture(scope="module")
def graded(handed_in, tmp_path_factory):
    """Graded at one go."""
    course = _copy(handed_in, tmp_path_factory)
    mark = uuid.uuid4().hex
    done = run(f"{GRADE} --seed twice", course, mark)
    return Graded(course, done.returncode, done.stdout, kill_marked(mark))


@pytest.fixture(scope="module")
def interrupted(handed_in, tmp_path_factory):
    """The same, killed twice on the way and stopped by Ctrl-C in between; completed in the background."""
    course = _copy(handed_in, tmp_path_factory)
    mark = uuid.uuid4().hex
    for records, ending in ((1, signal.SIGKILL), (2, signal.SIGINT), (3, signal.SIGKILL)):
        _stop(course, mark, records, ending)
    done = run(f"{GRADE} --seed twice", course, mark, in_the_background)
    return Graded(course, done.returncode, done.stdout, kill_marked(mark))


def _copy(course, tmp_path_factory):
    return shutil.copytree(course, tmp_path_factory.mktemp("class") / "course")


def _stop(course: Path, mark: str, records: int, ending: int) -> None:
    """Begin to grade, and end it when there are so many records; all its processes end with it."""
    command = [*GRADE.split(), "--seed", "twice"]
    with started(
        command,
        cwd=course,
        env=os.environ | {MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as grading:
        processes: list[psutil.Process] = []
        # There may be so many at once: submissions under way when Ctrl-C comes are still recorded.
        while not processes or len(list(course.glob("refereed/*/*/*.json"))) < records:
            assert grading.poll() is None, grading.stderr.read()
            time.sleep(0.02)
            processes = psutil.Process(grading.pid).children(recursive=True)
        os.killpg(grading.pid, ending)  # as a terminal's Ctrl-C
        _, said = grading.communicate()
        assert processes and still_running(processes) == []
    assert "to continue" in said or ending == signal.SIGKILL


def _entries(course: Path) -> dict[str, object]:
    """All that the gradebook says of the class."""
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        return {
            submission.student_id: (
                submission.timestamp,
                [notebook.late_submission_penalty for notebook in submission.notebooks],
                sorted(
                    (grade.name, grade.auto_score, grade.manual_score, grade.needs_manual_grade)
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                ),
                sorted(
                    (comment.name, comment.auto_comment)
                    for notebook in submission.notebooks
                    for comment in notebook.comments
                ),
            )
            for submission in gradebook.assignment_submissions(TOPIC)
        }


def _points(course: Path) -> dict[str, list[str]]:
    """The rows of the table above, as the gradebook has them."""
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        grades = {
            submission.student_id: {grade.name: grade for grade in submission.notebooks[0].grades}
            for submission in gradebook.assignment_submissions(TOPIC)
        }
    return {
        student: ["?" if own[name].needs_manual_grade else f"{own[name].score:g}" for name in COLUMNS]
        for student, own in grades.items()
    }


def _records(course: Path) -> dict[str, tuple]:
    """Of each record when it was written, and which secret each test cell has."""
    return {
        path.parent.name: (
            path.stat().st_mtime_ns,
            {
                cell["name"]: cell["secret"]
                for cell in json.loads(path.read_text())["cells"]
                if cell["is_test"]
            },
        )
        for path in course.glob(f"refereed/{TOPIC}/*/exercise.json")
    }


def test_every_student_gets_the_points_they_deserve(graded):
    assert _points(graded.folder) == ROWS | {"text": ["?"] * 4, "empty": ["?"] * 4}


def test_what_needs_a_person_is_said_in_a_line_each(graded):
    assert graded.status == 1
    assert "wrong: graded; exchange_check: the cell was missing" in graded.said
    assert (
        f"text: NOT graded: {graded.folder}/submitted/text/{TOPIC}/exercise.ipynb is not a notebook"
        in graded.said
    )
    assert "empty: NOT graded:" in graded.said and "no exercise.ipynb, but notes\\x1b[31m.txt" in graded.said
    assert "4 of 6 graded: 4 run now, 0 from earlier records." in graded.said
    assert "1 with answers to grade by hand" in graded.said


def test_the_late_one_gets_nbgraders_penalty(graded):
    timestamp, penalties, *_ = _entries(graded.folder)["late"]
    assert str(timestamp) == "2026-02-01 12:00:00" and penalties == [6]


def test_feedback_takes_what_was_given_by_hand_since_into_the_penalty(graded, tmp_path):
    course = shutil.copytree(graded.folder, tmp_path / "course")
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        gradebook.find_grade("exchange_explained", "exercise", TOPIC, "late").manual_score = 4
        gradebook.db.commit()
    assert run(f"nbgrader generate_feedback {TOPIC} --student late", course, "").returncode == 0
    _, penalties, *_ = _entries(course)["late"]
    assert penalties == [10]


def test_killed_twice_it_comes_to_the_same_gradebook(graded, interrupted):
    assert _entries(interrupted.folder) == _entries(graded.folder)
    assert interrupted.status == 1 and "4 of 6 graded" in interrupted.said


def test_what_was_done_before_it_was_killed_is_not_done_again(interrupted):
    assert "4 of 6 graded: 1 run now" in interrupted.said or "4 of 6 graded: 0 run now" in interrupted.said


def test_no_process_is_left_behind(graded, interrupted):
    assert graded.left_behind == interrupted.left_behind == []


def test_nbgraders_own_command_takes_what_is_on_record(graded):
    before, entries = _records(graded.folder), _entries(graded.folder)
    run(f"nbgrader autograde {TOPIC} --force", graded.folder, "")
    assert _records(graded.folder) == before
    assert _entries(graded.folder) == entries


def test_record_and_feedback_name_the_sandbox(graded):
    records = (graded.folder / "refereed" / TOPIC).glob("*/exercise.json")
    assert {json.loads(record.read_text())["tier"] for record in records} == {"namespaces"}
    notebook = nbformat.read(graded.folder / "autograded/perfect" / TOPIC / "exercise.ipynb", as_version=4)
    assert notebook.cells[-1].source == "Sandbox in which this was graded: namespaces (bubblewrap)."


def test_a_report_is_made_of_it(graded):
    done = run(f"{sys.executable} -m autograder report {TOPIC}", graded.folder, "")
    page = Path(done.stdout.strip())
    assert page == graded.folder / "report" / TOPIC / "index.html"
    assert "1 × an exception" in page.read_text()
    assert len(list(page.parent.glob("students/*.html"))) == 6


def test_one_check_is_regraded_and_all_others_stand(interrupted):
    before = _records(interrupted.folder)
    done = run(f"{GRADE} --students perfect,wrong --only gather --force", interrupted.folder, "")
    assert done.returncode == 0 and "2 of 2 graded: 2 run now" in done.stdout
    for student, (_, secrets) in _records(interrupted.folder).items():
        changed = {name for name, secret in secrets.items() if secret != before[student][1][name]}
        assert changed == ({"gather_check"} if student in ("perfect", "wrong") else set())
    assert _points(interrupted.folder)["wrong"] == ROWS["wrong"]


def test_of_a_class_only_who_hands_in_something_else_is_run_again(interrupted):
    submitted = interrupted.folder / "submitted"
    better = (submitted / "perfect" / TOPIC / "exercise.ipynb").read_bytes()
    (submitted / "late" / TOPIC / "exercise.ipynb").write_bytes(better)
    (submitted / "late" / TOPIC / "timestamp.txt").write_text("2026-01-30 12:00:00 UTC")
    before = _records(interrupted.folder)
    done = run(GRADE, interrupted.folder, "")
    assert "4 of 6 graded: 1 run now" in done.stdout
    after = _records(interrupted.folder)
    assert [student for student in after if after[student] != before[student]] == ["late"]
    assert _points(interrupted.folder)["late"] == ROWS["perfect"]
    assert _entries(interrupted.folder)["late"][1] == [None]
