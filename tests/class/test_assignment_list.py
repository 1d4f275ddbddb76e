"""nbgrader on a fresh clone, in a real browser: an exercise is generated, released, fetched, handed in."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

from tests import classroom

TOPIC = "01_hardware_hierarchy"
MENU = "//div[contains(@class, 'lm-MenuBar-itemLabel') and text()='Nbgrader']"
ITEM = "//div[contains(@class, 'lm-Menu-itemLabel') and text()='Assignment List']"


@pytest.fixture(scope="module")
def course(clone) -> Path:
    """A fresh clone: nothing was built, released or set."""
    return clone


@pytest.fixture(scope="module")
def lab(browser, course, serve_lab) -> Iterator[str]:
    with serve_lab(course) as url:
        yield url


def test_before_anything_was_released_the_list_is_empty(browser, lab):
    browser.get(f"{lab}lab?reset")
    for place in (MENU, ITEM):
        _click(browser, By.XPATH, place)
    empty = "//*[@id='released_assignments_list_placeholder' and contains(., 'There are no assignments')]"
    _wait(browser).until(element_to_be_clickable((By.XPATH, empty)))
    assert "Error fetching" not in browser.find_element(By.TAG_NAME, "body").text


def test_generate_makes_an_exercise_from_its_text(browser, lab, course):
    browser.get(f"{lab}formgrader/manage_assignments")
    row = f"//tr[td//*[text()='{TOPIC}'] or td[text()='{TOPIC}']]"
    _click(browser, By.XPATH, f"{row}/td[contains(@class, 'assign')]/a")
    success = "//*[contains(@class, 'modal-title') and text()='Success']"
    _wait(browser).until(element_to_be_clickable((By.XPATH, success)))
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        assert TOPIC in [assignment.name for assignment in gradebook.assignments]


def test_an_exercise_is_fetched_handed_in_and_collected(browser, lab, course):
    _do(course, f"nbgrader release_assignment {TOPIC}")
    browser.get(f"{lab}lab?reset")
    for place in (MENU, ITEM):
        _click(browser, By.XPATH, place)
    _click(browser, By.CSS_SELECTOR, "#released_assignments_list button")
    _click(browser, By.XPATH, "//div[@id='fetched_assignments_list']//button[text()='Submit']")
    submitted = f"//div[@id='submitted_assignments_list']//*[contains(text(), '{TOPIC}')]"
    _wait(browser).until(lambda _: browser.find_elements(By.XPATH, submitted))
    _do(course, f"nbgrader collect {TOPIC}")
    (collected,) = course.glob(f"submitted/*/{TOPIC}/exercise.ipynb")
    released = classroom.read(course / "exercises" / TOPIC / "exercise.ipynb")
    assert [cell.source for cell in classroom.read(collected).cells] == [
        cell.source for cell in released.cells
    ]


def _do(course: Path, *commands: str) -> None:
    for command in commands:
        done = classroom.run(command, course, uuid.uuid4().hex)
        assert done.returncode == 0, done.stdout


def _click(browser, by: str, place: str) -> None:
    _wait(browser).until(element_to_be_clickable((by, place))).click()


def _wait(browser) -> WebDriverWait:
    return WebDriverWait(browser, 60)
