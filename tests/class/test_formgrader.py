"""formgrader, in a real browser: shows the graded class, takes points for answers in words, and grades."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.timeout(600)  # the class is graded once, in the first test


@pytest.fixture(scope="module")
def course(grade_class) -> Path:
    """The folder of a class of three."""
    return grade_class("naive", "unfinished", "zipped").folder


@pytest.fixture(scope="module")
def formgrader(browser, course, serve_lab) -> Iterator[str]:
    """The address of formgrader's pages."""
    with serve_lab(course) as url:
        yield f"{url}formgrader/"


def test_the_assignment_is_listed_with_its_submissions(browser, formgrader):
    browser.get(formgrader + "manage_assignments")
    row = _row(browser, "02_collectives")
    assert row.find_element(By.CSS_SELECTOR, "td.num-submissions").text == "3"


def test_every_student_is_listed_with_what_they_got_and_what_is_left_to_do(browser, formgrader):
    browser.get(formgrader + "manage_submissions/02_collectives")
    assert "needs manual grading 6 / 100" in _row(browser, "naive").text
    assert "graded 6 / 100" in _row(browser, "unfinished").text
    assert "needs autograding" in _row(browser, "zipped").text


def test_points_for_an_answer_in_words_are_entered_and_counted(browser, formgrader):
    browser.get(formgrader + "gradebook/02_collectives/exercise")
    link = _row(browser, "naive").find_element(By.CSS_SELECTOR, "a.name-shown")
    browser.get(link.get_attribute("href"))
    score = _wait(browser, lambda _: browser.find_element(By.CSS_SELECTOR, "input.needs_manual_grade"))
    assert score.get_attribute("id") == "exchange_explained"
    score.send_keys("5", Keys.TAB)
    _wait(browser, lambda _: "needs_manual_grade" not in score.get_attribute("class"))
    browser.get(formgrader + "manage_students")
    assert _row(browser, "naive").text.endswith("11 / 100")


def test_what_comes_late_is_graded_at_the_press_of_a_button(browser, formgrader, course):
    shutil.copytree(course / "submitted" / "unfinished", course / "submitted" / "late")
    browser.get(formgrader + "manage_submissions/02_collectives")
    _row(browser, "late").find_element(By.CSS_SELECTOR, "td.autograde a").click()
    _wait(browser, lambda _: "graded 6 / 100" in _row(browser, "late").text)


def _row(browser, text: str):
    """The row of a page's table with a cell of this text, hidden or not."""
    path = f"//tr[td//*[text()='{text}'] or td[text()='{text}']]"
    return _wait(browser, lambda _: browser.find_element(By.XPATH, path))


def _wait(browser, condition):
    return WebDriverWait(browser, 60).until(condition)
