"""make lab, in a real browser: the start page is shown rendered, and its links open notebooks."""

from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import (
    presence_of_element_located,
    text_to_be_present_in_element,
)
from selenium.webdriver.support.ui import WebDriverWait


def test_make_lab_shows_the_start_page_and_its_links_open_notebooks(browser, lab):
    browser.get(lab)
    assert wait_for(browser, ".jp-MarkdownViewer h1").text == "Four Ranks"
    links = browser.find_elements(By.CSS_SELECTOR, ".jp-MarkdownViewer table a")
    assert {link.text for link in links} == {"lecture", "exercise", "solution"}

    next(link for link in links if link.text == "exercise").click()
    wait_for(browser, ".jp-NotebookPanel .jp-Cell")
    assert "/lab/tree/exercises/" in browser.current_url
    kernel = (By.CSS_SELECTOR, "[title='Change kernel for exercise.ipynb']")
    WebDriverWait(browser, 60).until(text_to_be_present_in_element(kernel, "Python 3 (ipykernel) | Idle"))


def wait_for(browser, selector: str) -> WebElement:
    return WebDriverWait(browser, 60).until(presence_of_element_located((By.CSS_SELECTOR, selector)))
