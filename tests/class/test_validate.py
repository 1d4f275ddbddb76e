"""Validate, as a command and as a button in a real browser: it says what the checks say."""

import uuid
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbgrader.utils import is_grade
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

from tests import classroom
from tests.classroom import answers, filled_in, read

TOPIC = "01_hardware_hierarchy"


@pytest.fixture(scope="module")
def course(clone) -> Path:
    """A course, and in an exercise's folder its beginning to the first check, untouched and solved."""
    folder = clone / "exercises" / TOPIC
    released = _beginning(read(folder / "exercise.ipynb"))
    solved = filled_in(released, answers(read(clone / "solutions" / TOPIC / "exercise.ipynb")))
    nbformat.write(released, folder / "untouched.ipynb")
    nbformat.write(solved, folder / "solved.ipynb")
    return clone


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


def test_so_does_the_button(browser, course, serve_lab):
    with serve_lab(course) as url:
        browser.get(f"{url}lab/tree/exercises/{TOPIC}/untouched.ipynb?reset")
        wait = WebDriverWait(browser, 60)
        wait.until(element_to_be_clickable((By.CSS_SELECTOR, "jp-button.validate-button"))).click()
        dialog = wait.until(element_to_be_clickable((By.CSS_SELECTOR, ".jp-Dialog-content")))
        assert EXPECTED["untouched"] in dialog.text
        assert "Traceback" not in dialog.text
