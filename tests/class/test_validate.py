"""Validate, as a command and as a button in a real browser: it says what the checks say."""

import re
import uuid
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

from tests import classroom
from tests.classroom import answers, filled_in, read

TOPIC = "01_hardware_hierarchy"
EXERCISES = sorted(classroom.COURSE.glob("exercises/*/exercise.ipynb"))


@pytest.fixture(scope="module")
def course(clone) -> Path:
    """A course, and in an exercise's folder parts of it: to the first check, and its questions in words."""
    folder = clone / "exercises" / TOPIC
    exercise = read(folder / "exercise.ipynb")
    solution = answers(read(clone / "solutions" / TOPIC / "exercise.ipynb"))
    questions = NotebookNode(exercise | {"cells": [cell for cell in exercise.cells if _is_in_words(cell)]})
    first, *_ = answers(questions)
    released = _beginning(exercise)
    nbformat.write(released, folder / "untouched.ipynb")
    nbformat.write(filled_in(released, solution), folder / "solved.ipynb")
    nbformat.write(filled_in(questions, {first: solution[first]}), folder / "half_answered.ipynb")
    return clone


def _is_in_words(cell: NotebookNode) -> bool:
    return is_grade(cell) and is_solution(cell)


def _beginning(notebook: NotebookNode) -> NotebookNode:
    first = next(index for index, cell in enumerate(notebook.cells) if is_grade(cell))
    notebook.cells = notebook.cells[: first + 1]
    return notebook


EXPECTED = {
    "untouched": "matmul_intensity: not implemented yet",
    "solved": "Success! Your notebook passes all the tests.",
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items(), ids=EXPECTED)
def test_the_command_says_what_the_checks_say(course, name, expected):
    done = classroom.run(f"nbgrader validate exercises/{TOPIC}/{name}.ipynb", course, uuid.uuid4().hex)
    assert expected in done.stdout
    assert "Traceback" not in done.stdout


def test_a_question_in_words_that_has_no_answer_is_named(course):
    done = classroom.run(f"nbgrader validate exercises/{TOPIC}/half_answered.ipynb", course, uuid.uuid4().hex)
    assert "FAILED ON 1 CELL" in done.stdout
    assert "Answer to question 2" in done.stdout and "Answer to question 1" not in done.stdout


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.parent.name)
def test_each_place_for_an_answer_in_words_names_the_question_above_it(path):
    named = [
        (re.findall(r"Question (\d+) \(graded by hand\)", above.source), cell.source)
        for above, cell in pairwise(read(path).cells)
        if _is_in_words(cell)
    ]
    assert named
    for numbers, source in named:
        assert [f"**Answer to question {number}**\n\nYour answer here." for number in numbers] == [source]


def test_so_does_the_button(browser, course, serve_lab):
    with serve_lab(course) as url:
        browser.get(f"{url}lab/tree/exercises/{TOPIC}/untouched.ipynb?reset")
        wait = WebDriverWait(browser, 60)
        wait.until(element_to_be_clickable((By.CSS_SELECTOR, "jp-button.validate-button"))).click()
        dialog = wait.until(element_to_be_clickable((By.CSS_SELECTOR, ".jp-Dialog-content")))
        assert EXPECTED["untouched"] in dialog.text
        assert "Traceback" not in dialog.text
