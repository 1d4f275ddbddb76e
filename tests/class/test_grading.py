"""A class is graded by nbgrader: everyone gets the points they deserve, whatever the others hand in."""

import csv
import re
from html import unescape
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.utils import is_locked

from tests.classroom import PICTURE

pytestmark = pytest.mark.timeout(1200)  # the class is graded once, in the first test


@pytest.fixture(scope="module")
def classroom(grade_class):
    return grade_class()


# Points by question; ? is for a person to decide: an answer in words, or a notebook that cannot be run.
# A question without an answer is worth 0 without anyone looking at it.
QUESTIONS = """
    exchange_check exchange_explained broadcast_check reduce_check scatter_check gather_check
    ring_reduce_scatter_check ring_all_gather_check ring_all_reduce_check all_reduce_explained
    all_to_all_check
"""
DESERVED = """
    perfect     6  ? 12 12  6  6 15 10 15  ?  6
    warning     6  0  0  0  6  0  0  0  0  0  0
    naive       0  ?  0  0  6  0  0  0  0  0  0
    odd         0  0  0  0  6  0  0  0  0  0  0
    stuck       0  0  0  0  6  0  0  0  0  0  0
    raising     0  0  0  0  6  0  0  0  0  0  0
    dying       0  0  0  0  6  0  0  0  0  0  0
    endless     0  0  0  0  6  0  0  0  0  0  0
    unfinished  0  0  0  0  6  0  0  0  0  0  0
    crashing    0  0  0  0  6  0  0  0  0  0  0
    copying     0  0  0  0  6  0  0  0  0  0  0
    untouched   0  0  0  0  0  0  0  0  0  0  0
    forging     0  ?  0  0  0  0  0  0  0  ?  0
    deleting    0  ?  0  0  0  0  0  0  0  ?  0
    text        ?  ?  ?  ?  ?  ?  ?  ?  ?  ?  ?
    zipped      ?  ?  ?  ?  ?  ?  ?  ?  ?  ?  ?
    renamed     ?  ?  ?  ?  ?  ?  ?  ?  ?  ?  ?
"""
ROWS = {student: points for student, *points in map(str.split, DESERVED.strip().splitlines())}
NOT_GRADED = ("text", "zipped", "renamed")

# Words on a student's page, of the question that went wrong.
SAID = {
    "naive": "ring_all_reduce: right, but too many bytes",
    "odd": "broadcast: no result in the argument",
    "stuck": "exchange: a deadlock, ranks send to each other",
    "raising": "gather: an exception",
    "dying": "reduce: a rank died",
    "endless": "all_to_all: no answer in time",
    "unfinished": "gather: not defined",
    "copying": "scatter: passed",
    "untouched": "exchange: not implemented",
    "forging": "exchange_check: the cell is locked and was changed; the instructor's is used",
    "deleting": "exchange: the cell was missing; it is there again, without an answer",
    "crashing": "exchange: ",
    "perfect": "ring_all_reduce: passed",
    "warning": "exchange: passed",
}


@pytest.mark.parametrize("student", ROWS)
def test_every_student_gets_the_points_they_deserve(student, classroom):
    with Gradebook(f"sqlite:///{classroom.folder}/gradebook.db", "fourranks") as gradebook:
        (notebook,) = gradebook.find_submission("02_collectives", student).notebooks
        grades = {grade.name: _points(grade) for grade in notebook.grades}
    assert grades == dict(zip(QUESTIONS.split(), ROWS[student], strict=True))


def _points(grade) -> str:
    return "?" if grade.needs_manual_grade else f"{grade.score:g}"


def test_the_commands_succeed_but_for_what_cannot_be_run_which_is_named_with_the_reason(classroom):
    failed = [command for command, status in classroom.status.items() if status != 0]
    assert failed == ["autograder grade 02_collectives"]
    said = classroom.said[failed[0]]
    named = re.findall(r"^(\w+): NOT graded: (.+)", said, re.MULTILINE)
    assert sorted(student for student, _ in named) == sorted((*NOT_GRADED, "missing"))
    assert "not a notebook" in dict(named)["text"] and "notes.txt" in dict(named)["missing"]
    assert "SAWarning" not in said


def test_the_exported_table_has_everyone_on_the_roster_with_their_score(classroom):
    with (classroom.folder / "grades.csv").open() as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    deserved = {student: sum(int(points) for points in row if points != "?") for student, row in ROWS.items()}
    assert scores == deserved | {"missing": 0}


@pytest.mark.parametrize("student", SAID)
def test_a_feedback_page_says_what_became_of_the_answers_but_shows_no_hidden_test(student, classroom):
    page = (classroom.folder / "feedback" / student / "02_collectives" / "exercise.html").read_text()
    text = unescape(re.sub("<[^>]*>", "", page))
    assert SAID[student] in text
    assert "check.exchange(exchange)" in text
    hidden = _hidden_tests(classroom)
    assert len(hidden) == 9
    assert [line for line in hidden if line in text] == []


def test_a_picture_in_an_answer_is_in_the_feedback_page(classroom):
    page = (classroom.folder / "feedback" / "naive" / "02_collectives" / "exercise.html").read_text()
    assert f'src="data:image/png;base64,{PICTURE}"' in page


def test_only_what_was_graded_has_a_feedback_page(classroom):
    pages = {folder.name for folder in (classroom.folder / "feedback").iterdir()}
    assert pages == set(ROWS) - set(NOT_GRADED)


def _hidden_tests(classroom) -> list[str]:
    """The lines that only the source's test cells have."""
    source, released = (_tests(classroom.folder / kind) for kind in ("source", "exercises"))
    return [line for line in source if line not in released and "HIDDEN TESTS" not in line]


def _tests(folder: Path) -> list[str]:
    notebook = nbformat.read(folder / "02_collectives" / "exercise.ipynb", as_version=4)
    return [line for cell in notebook.cells if is_locked(cell) for line in cell.source.splitlines()]


def test_no_process_is_left_behind(classroom):
    assert classroom.left_behind == []
