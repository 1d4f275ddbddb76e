"""Names that are HTML, in a real browser: formgrader runs nothing of them, and shows them as they are."""

import shutil
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from nbgrader.api import Gradebook
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.filterwarnings("ignore:Object of type <Submitted")  # nbgrader 0.9's

TOPIC = "02_collectives"
# Runs as HTML, and in a string of JavaScript or an attribute; nbgrader's exchange takes this name.
HOSTILE = '";window.ran=1;"<svg onload=window.ran=1>'
IRISH = "o'brien"
IN_PATH = quote(HOSTILE)
LISTS = {
    "manage_assignments": HOSTILE,
    f"manage_submissions/{TOPIC}": HOSTILE,
    f"manage_submissions/{IN_PATH}": HOSTILE,
    "manage_students": HOSTILE,
    f"manage_students/{IN_PATH}": TOPIC,
    f"manage_students/{IN_PATH}/{TOPIC}": HOSTILE,
    f"manage_students/{quote(IRISH)}": TOPIC,
    "gradebook": HOSTILE,
    f"gradebook/{IN_PATH}": HOSTILE,
    f"gradebook/{TOPIC}": HOSTILE,
    f"gradebook/{TOPIC}/{IN_PATH}": HOSTILE,
    f"gradebook/{TOPIC}/exercise": "Submission #1",
}


@pytest.fixture(scope="module")
def numbers(clone) -> list[str]:
    """A course with such names in its gradebook; gives the numbers of two students' notebooks."""
    for student in (HOSTILE, IRISH):
        for folder in ("submitted", "autograded"):
            shutil.copytree(clone / "exercises" / TOPIC, clone / folder / student / TOPIC)
    shutil.copytree(clone / "source" / TOPIC, clone / "source" / HOSTILE)
    with Gradebook(f"sqlite:///{clone}/gradebook.db", "fourranks") as gradebook:
        for assignment in (TOPIC, HOSTILE):
            gradebook.add_assignment(assignment)
            for notebook in ("exercise", HOSTILE):
                gradebook.add_notebook(notebook, assignment)
                gradebook.add_grade_cell("ring", notebook, assignment, max_score=1, cell_type="code")
        gradebook.add_student(HOSTILE)
        gradebook.add_student(IRISH, first_name=HOSTILE, last_name=HOSTILE, email=HOSTILE)
        for student in (HOSTILE, IRISH):
            gradebook.add_submission(TOPIC, student)
        ids = [
            gradebook.find_submission_notebook("exercise", TOPIC, student).id for student in (HOSTILE, IRISH)
        ]
    return ids


@pytest.fixture(scope="module")
def formgrader(clone, numbers, serve_lab) -> Iterator[str]:
    with serve_lab(clone) as url:
        yield f"{url}formgrader/"


@pytest.mark.parametrize("page", LISTS)
def test_in_a_list_a_name_of_html_is_text(browser, formgrader, page):
    browser.get(formgrader + page)
    body = WebDriverWait(browser, 60).until(lambda _: _filled(browser))
    assert browser.execute_script("return window.ran") is None
    assert LISTS[page] in body.text


@pytest.mark.parametrize("student", [0, 1], ids=["of a folder", "of a person"])
def test_above_a_submission_a_name_of_html_is_text(browser, formgrader, numbers, student):
    browser.get(f"{formgrader}submissions/{numbers[student]}/")
    browser.find_element(By.CSS_SELECTOR, ".glyphicon-eye-open").click()
    assert browser.execute_script("return window.ran") is None
    assert HOSTILE in browser.find_element(By.CSS_SELECTOR, "a.name-shown").text


def test_a_page_that_is_handed_in_beside_the_notebook_runs_nothing(browser, formgrader, numbers, clone):
    page = clone / "autograded" / IRISH / TOPIC / "page.html"
    page.write_text("<p>handed in</p><script>document.title = 'ran'</script>")
    browser.get(f"{formgrader}submissions/{numbers[1]}/{page.name}")
    assert browser.find_element(By.TAG_NAME, "p").text == "handed in"
    assert browser.title != "ran"


def _filled(browser):
    """The page, once its script has filled in the list."""
    body = browser.find_element(By.TAG_NAME, "body")
    return None if "Loading, please wait" in body.text else body
