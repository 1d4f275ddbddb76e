"""Opening a notebook, in a real JupyterLab in a browser, changes nothing."""

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from .test_browser import PANEL, Notebook, written

pytestmark = pytest.mark.timeout(600)

LECTURE = "lectures/00_hello/lecture.ipynb"
BUILT = [LECTURE, "exercises/00_hello/exercise.ipynb", "solutions/00_hello/exercise.ipynb"]
TAB = ".jp-mod-current.lm-TabBar-tab"


@pytest.fixture
def opened(browser: Chrome, lab: str, student_copy: Path) -> Callable[[str], Notebook]:
    """Opens a notebook of the course, with a kernel."""

    def opened(path: str) -> Notebook:
        browser.get(f"{lab}lab/tree/{path}?reset")
        return Notebook(browser, path, cells=len(read(student_copy / path).cells))

    return opened


def is_dirty(browser: Chrome) -> bool:
    """Whether JupyterLab would save the notebook after a while, and ask before it closes it."""
    return "jp-mod-dirty" in browser.find_element(By.CSS_SELECTOR, TAB).get_attribute("class")


@pytest.mark.parametrize("path", BUILT)
def test_a_notebook_that_is_opened_and_closed_stays_as_it_was(opened, browser, student_copy, path):
    before = (student_copy / path).read_bytes()
    page = opened(path)
    assert not is_dirty(browser)
    page.press("save")
    page.wait_for(lambda: "Saving completed" in browser.find_element(By.ID, "jp-main-statusbar").text)
    browser.find_element(By.CSS_SELECTOR, f"{TAB} .lm-TabBar-tabCloseIcon").click()
    page.wait_for(lambda: not browser.find_elements(By.CSS_SELECTOR, PANEL))
    assert [dialog.text for dialog in browser.find_elements(By.CSS_SELECTOR, ".jp-Dialog")] == []
    assert (student_copy / path).read_bytes() == before


def test_a_notebook_that_a_reader_wrote_keeps_what_lab_writes_into_it(opened, browser, student_copy):
    nbformat.write(written("1 + 1"), student_copy / "own.ipynb")
    page = opened("own.ipynb")
    page.wait_for(lambda: is_dirty(browser))
    page.press("save")
    page.wait_for(lambda: "version" in language_info(student_copy / "own.ipynb"))


def language_info(path: Path) -> dict:
    """A notebook's entry of its language; nothing while Lab is still writing the file."""
    try:
        return read(path).metadata.get("language_info", {})
    except nbformat.reader.NotJSONError:
        return {}


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)
