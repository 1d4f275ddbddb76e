"""The games and the sliders as a player meets them: a real JupyterLab in a real browser."""

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from .test_browser import Notebook, read, written

PUZZLES = "play/puzzles.ipynb"
SLIDERS = ".fourranks-sliders input[type=range]"


@pytest.fixture
def opened(browser: Chrome, lab: str, student_copy: Path) -> Callable[..., Notebook]:
    """Opens a notebook of the course, or a new one with these cells."""

    def opened(name: str, *sources: str) -> Notebook:
        if sources:
            nbformat.write(written(*sources), student_copy / name)
        browser.get(f"{lab}lab/tree/{name}?reset")
        cells = len(nbformat.read(student_copy / name, as_version=4).cells)
        return Notebook(browser, name, cells=cells)

    return opened


def test_all_boards_can_be_played_from_top_to_bottom_and_leave_their_records(opened, student_copy):
    page = opened(PUZZLES)
    page.restart_and_run_all()
    for cell, shown in zip(read(PUZZLES), page.cells, strict=True):
        assert not shown["errors"], cell.source
        if ".play(" in cell.source:
            assert all(shown["figures"]) and len(shown["figures"]) == 1, cell.source
            assert "It works." in shown["text"] or "Not yet." in shown["text"], cell.source
    assert (student_copy / "play" / "puzzle_records.json").exists()


def test_an_incident_is_run_looked_into_and_answered(opened):
    page = opened(
        "on_call.ipynb",
        "%load_ext fourranks\nfrom fourranks import incidents\n%ranks start",
        'job = incidents.start("Worse on four ranks")\njob',
        "%%ranks --trace\n%run incidents/worse_on_four_ranks.py",
        "%%ranks\nown_expert",
        'job.answer(rank=[1, 2], line=14, cause="G")',
    )
    shown = [page.run_next() for _ in range(4)]
    assert "The clock runs" in shown[1]["text"]
    assert "difference from the evaluation in one process" in shown[2]["text"] and shown[2]["figures"]
    assert "[1] 2\n[2] 1" in shown[3]["text"]
    page.press("run")
    page.wait_for(lambda: "Points: 12 of 12" in page.cells[4]["text"])


def test_sliders_move_a_figure_and_a_stored_notebook_shows_it_alone(opened, browser, student_copy):
    source = "from fourranks.figures import playgrounds\nplaygrounds.pipeline_schedules()"
    page = opened("sliders.ipynb", source)
    page.press("run")
    page.wait_for(lambda: len(browser.find_elements(By.CSS_SELECTOR, SLIDERS)) == 3)
    picture = browser.find_element(By.CSS_SELECTOR, ".jp-OutputArea-output img")
    first = picture.get_attribute("src")
    browser.find_elements(By.CSS_SELECTOR, SLIDERS)[2].send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.wait_for(lambda: "Rank 0 keeps 2: 51 ticks" in picture.get_attribute("alt"))
    assert picture.get_attribute("src") != first
    page.press("save")
    page.wait_for(lambda: "image/png" in (student_copy / "sliders.ipynb").read_text())

    stored = nbformat.read(student_copy / "sliders.ipynb", as_version=4)
    nbformat.write(stored, student_copy / "stored_sliders.ipynb")
    page = opened("stored_sliders.ipynb")
    assert page.cells[0]["figures"][0] > 0
    assert not browser.find_elements(By.CSS_SELECTOR, SLIDERS)
