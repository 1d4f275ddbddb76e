"""formgrader, in a real browser: shows the graded class, takes points for answers in words, and grades."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from nbgrader.api import Gradebook
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

RUNS = "<img src=x onerror=window.ran=1>"
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


def test_html_in_a_students_name_is_shown_as_text_and_does_not_run(browser, formgrader, course):
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        gradebook.update_or_create_student("naive", first_name=RUNS, last_name=RUNS)
    browser.get(formgrader + "gradebook/02_collectives/exercise")
    pages = [
        _row(browser, f"{RUNS}, {RUNS}").find_element(By.CSS_SELECTOR, "a.name-shown").get_attribute("href"),
        formgrader + "manage_students",
        formgrader + "manage_students/naive",
        formgrader + "manage_submissions/02_collectives",
    ]
    for page in pages:
        browser.get(page)
        _wait(browser, lambda _: browser.execute_script("return document.readyState") == "complete")
        assert _ran(browser) is None, page
    browser.get(pages[0])
    assert f"{RUNS}, {RUNS}" in _wait(
        browser, lambda _: browser.find_element(By.CSS_SELECTOR, "a.name-shown")
    ).get_attribute("textContent")


@pytest.mark.parametrize(
    "page",
    [
        "manage_students/{}",
        "manage_students/naive/{}",
        "manage_submissions/{}",
        "gradebook/{}",
        "gradebook/02_collectives/{}",
    ],
)
@pytest.mark.parametrize("name", [RUNS, "</script><script>window.ran=1</script>", '";window.ran=1;"'])
def test_code_in_a_pages_address_does_not_run(browser, formgrader, page, name):
    browser.get(formgrader + page.format(quote(name, safe="")))
    assert _ran(browser) is None


def _ran(browser):
    """What a script of a name has left in the page."""
    return browser.execute_script("return window.ran")


def _row(browser, text: str):
    """The row of a page's table with a cell of this text, hidden or not."""
    path = f"//tr[td//*[text()='{text}'] or td[text()='{text}']]"
    return _wait(browser, lambda _: browser.find_element(By.XPATH, path))


def _wait(browser, condition):
    return WebDriverWait(browser, 60).until(condition)
