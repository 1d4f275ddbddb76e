"""The assignment list, in a real browser: what was released is fetched, handed in, and collected."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

from tests import classroom

TOPIC = "01_hardware_hierarchy"
MENU = "//div[contains(@class, 'lm-MenuBar-itemLabel') and text()='Nbgrader']"
ITEM = "//div[contains(@class, 'lm-Menu-itemLabel') and text()='Assignment List']"


@pytest.fixture(scope="module")
def course(clone, tmp_path_factory) -> Path:
    """A course with an exchange, to which an exercise was released."""
    exchange = tmp_path_factory.mktemp("exchange")
    exchange.chmod(0o777)
    with (clone / "nbgrader_config.py").open("a") as config:
        config.write(f'c.Exchange.root = "{exchange}"\n')
    _do(clone, "autograder build", f"nbgrader generate_assignment {TOPIC}")
    _do(clone, f"nbgrader release_assignment {TOPIC}")
    return clone


@pytest.fixture
def lab(browser, course, serve_lab) -> Iterator[str]:
    with serve_lab(course) as url:
        yield url


def test_an_exercise_is_fetched_handed_in_and_collected(browser, lab, course):
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
