"""formgrader, in a real browser: it shows the graded class, and takes the points for an answer in words."""

import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from jupyter_server.serverapp import list_running_servers
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.timeout(600)  # the class is graded once, in the first test


@pytest.fixture(scope="module")
def formgrader(browser, grade_class, tmp_path_factory) -> Iterator[str]:
    """The address of formgrader's pages, for a class of three."""
    course = grade_class("perfect", "naive", "zipped").folder
    folder = tmp_path_factory.mktemp("formgrader")
    settings = {"JUPYTER_CONFIG_PATH": str(course / ".jupyter"), "JUPYTER_RUNTIME_DIR": str(folder)}
    command = ["jupyter", "lab", "--no-browser", "--port=0", "--IdentityProvider.token="]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=course, env=os.environ | settings, stdout=log, stderr=log) as server,
    ):
        try:
            while not (servers := list(list_running_servers(str(folder)))):
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield f"{servers[0]['url']}formgrader/"
        finally:
            server.terminate()


def test_the_assignment_is_listed_with_its_submissions(browser, formgrader):
    browser.get(formgrader + "manage_assignments")
    row = _row(browser, "02_collectives")
    assert row.find_element(By.CSS_SELECTOR, "td.num-submissions").text == "3"


def test_every_student_is_listed_with_what_they_got_and_what_is_left_to_do(browser, formgrader):
    browser.get(formgrader + "manage_submissions/02_collectives")
    assert "needs manual grading 88 / 100" in _row(browser, "perfect").text
    assert "graded 6 / 100" in _row(browser, "naive").text
    assert "needs autograding" in _row(browser, "zipped").text


def test_points_for_an_answer_in_words_are_entered_and_counted(browser, formgrader):
    browser.get(formgrader + "gradebook/02_collectives/exercise")
    link = _row(browser, "perfect").find_element(By.CSS_SELECTOR, "a.name-shown")
    browser.get(link.get_attribute("href"))
    score = _wait(browser, lambda _: browser.find_element(By.CSS_SELECTOR, "input.needs_manual_grade"))
    assert score.get_attribute("id") == "exchange_explained"
    score.send_keys("5", Keys.TAB)
    _wait(browser, lambda _: "needs_manual_grade" not in score.get_attribute("class"))
    browser.get(formgrader + "manage_students")
    assert _row(browser, "perfect").text.endswith("93 / 100")


def _row(browser, text: str):
    """The row of a page's table with a cell of this text, hidden or not."""
    path = f"//tr[td//*[text()='{text}'] or td[text()='{text}']]"
    return _wait(browser, lambda _: browser.find_element(By.XPATH, path))


def _wait(browser, condition):
    return WebDriverWait(browser, 30).until(condition)
