"""`%ranks dashboard` in a real JupyterLab in a real browser."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from .test_browser import PANEL, Notebook, _runs, written

DASHBOARD = f"{PANEL} .fourranks-dashboard"
PROMPTS = f"{PANEL} .jp-Notebook .jp-Cell .jp-InputPrompt"
START = "%load_ext fourranks\n%ranks start\n%ranks dashboard"
PANE = ".jupyterlab-sidecar .fourranks-dashboard"
# In 420 pixels: the height at which each button stands, and what reaches beyond the edge.
NARROW = """
const root = document.querySelector(arguments[0]);
root.style.width = "420px";
const box = element => element.getBoundingClientRect();
const isOutside = element => box(element).right > box(root).right;
return [
    [...root.querySelectorAll("button")].map(button => box(button).top),
    [...root.querySelectorAll("*")].filter(isOutside).map(element => element.className),
];
"""
# A minute passes at once; from now on `titles` are all that the dashboard says of itself.
LATER = """
const now = performance.now.bind(performance);
performance.now = () => now() + 60_000;
window.titles = new Set();
const look = () => document.querySelectorAll(".fourranks-dashboard .title").forEach(
    title => titles.add(title.textContent)
);
new MutationObserver(look).observe(document.body, {childList: true, characterData: true, subtree: true});
"""
STUCK = "%%ranks\nkept = rank\nif rank == 0:\n    import time; time.sleep(600)\ndist.barrier()"


class Page(Notebook):
    """A notebook with a dashboard in it."""

    @property
    def dashboard(self) -> str:
        """The dashboard's words once it is in sight; None before it is there. Out of sight it rests."""
        views = self._browser.find_elements(By.CSS_SELECTOR, DASHBOARD)
        for view in views:
            self._browser.execute_script("arguments[0].scrollIntoView()", view)
        return "".join(view.text for view in views)

    def press_in_dashboard(self, button: str) -> None:
        """Press a button as soon as it can be pressed; the active cell stays active."""
        active = self._active
        self._click(f"{DASHBOARD} button.{button}:enabled")
        self.wait_for(lambda: self._activate(active))

    def _activate(self, index: int) -> bool:
        """Click on a cell's prompt, and again if it was moving: the dashboard above it grows and shrinks."""
        with contextlib.suppress(ElementClickInterceptedException, StaleElementReferenceException):
            self._browser.find_elements(By.CSS_SELECTOR, PROMPTS)[index].click()
        return self._active == index


@pytest.fixture
def opened(browser: Chrome, lab: str, student_copy: Path) -> Callable[..., Page]:
    """Opens a new notebook with these cells."""

    def opened(name: str, *sources: str) -> Page:
        nbformat.write(written(*sources), student_copy / name)
        browser.get(f"{lab}lab/tree/{name}?reset")
        return Page(browser, name, cells=len(sources))

    return opened


def test_it_follows_a_cell_and_its_buttons_work_while_the_cell_runs(opened):
    page = opened("live.ipynb", START, STUCK, "%%ranks\nkept", STUCK)
    page.run_next()
    page.wait_for(lambda: "4 ranks, gloo: idle" in page.dashboard)
    page.press("run")
    page.wait_for(lambda: page.dashboard.count("waiting for rank 0 in barrier") == 3)
    page.wait_for(lambda: "line 4: import time; time.sleep(600)" in page.dashboard)
    assert "line 5: dist.barrier()" in page.dashboard

    page.press_in_dashboard("interrupt")
    page.wait_for(lambda: not _runs(page.cells[1]))
    assert "The cell was interrupted." in page.cells[1]["errors"]
    assert page.run_next()["text"] == "[0] 0\n[1] 1\n[2] 2\n[3] 3\n"

    page.press("run")
    page.wait_for(lambda: "waiting for rank 0" in page.dashboard)
    page.press_in_dashboard("restart")
    assert _runs(page.cells[3]), "the first press of a button that costs variables only asks"
    page.press_in_dashboard("restart.sure")
    page.wait_for(lambda: not _runs(page.cells[3]) and "4 ranks, gloo: idle" in page.dashboard)
    assert "The ranks were restarted or stopped while it ran" in page.cells[3]["errors"]


def test_it_goes_quiet_when_it_is_hidden_and_wakes_up_when_it_is_seen(opened, browser):
    page = opened(
        "hidden.ipynb",
        f"{START}\nprint('\\n' * 200)",
        "import threading, time\n"
        "def is_served():\n"
        "    return 'fourranks dashboard' in [thread.name for thread in threading.enumerate()]\n"
        "while is_served(): time.sleep(0.1)\n"
        "'quiet'",
        STUCK,
    )
    page.run_next()
    assert "'quiet'" in page.run_next()["text"]
    browser.execute_script(LATER)
    page.press("run")
    page.wait_for(lambda: "running a cell" in page.dashboard)
    titles = browser.execute_script("return [...titles]")
    assert not any("does not answer" in title for title in titles), titles
    page.press_in_dashboard("interrupt")
    page.wait_for(lambda: not _runs(page.cells[2]))
    assert "The cell was interrupted." in page.cells[2]["errors"]


def test_it_stands_once_beside_the_notebook_also_after_the_page_was_loaded_again(opened, browser):
    page = opened("beside.ipynb", f"{START} --side", "%ranks dashboard --side", STUCK)
    page.run_next()
    page.run_next()
    page.press("run")
    page.wait_for(lambda: "waiting for rank 0 in barrier" in _pane(browser))

    buttons, outside = browser.execute_script(NARROW, PANE)
    assert len(set(buttons)) == 1 and not outside

    page.press("interrupt")
    page.wait_for(lambda: not _runs(page.cells[2]))
    browser.refresh()
    page.wait_for(lambda: "4 ranks, gloo: idle" in _pane(browser))


def test_it_says_so_when_the_kernel_was_restarted(opened, browser):
    page = opened("restarted.ipynb", f"{START} --side", "1")
    page.run_next()
    page.wait_for(lambda: "4 ranks, gloo: idle" in _pane(browser))
    page.press("restart")
    page._click(".jp-Dialog .jp-mod-accept")
    page.wait_for(lambda: "This is how it was." in _pane(browser))


def _pane(browser: Chrome) -> str:
    """The words of the only dashboard beside the notebook."""
    views = browser.find_elements(By.CSS_SELECTOR, PANE)
    return views[0].text if len(views) == 1 else ""


def test_a_stored_notebook_shows_a_table_in_its_place(opened, browser, lab, student_copy):
    page = opened("living.ipynb", "%load_ext fourranks\n%ranks start -n 2\n%ranks dashboard", "1")
    page.run_next()
    page.press("save")
    page.wait_for(lambda: "text/html" in (student_copy / "living.ipynb").read_text())
    (student_copy / "stored.ipynb").write_bytes((student_copy / "living.ipynb").read_bytes())
    browser.get(f"{lab}lab/tree/stored.ipynb?reset")
    stored = Page(browser, "stored.ipynb", cells=2)
    stored.wait_for(lambda: "rankpid" in stored.cells[0]["text"])
    assert "Error" not in stored.cells[0]["text"] and not stored.dashboard
    assert "How the ranks were on 20" in stored.cells[0]["text"]
