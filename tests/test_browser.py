"""The course as its reader meets it: a real JupyterLab in a real browser, from the start page's links on."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.timeout(600)

COURSE = Path(__file__).parents[1]
TOPIC = "00 Hello"
LECTURE, EXERCISE, SOLUTION = (
    f"{folder}/00_hello/{name}.ipynb"
    for folder, name in (("lectures", "lecture"), ("exercises", "exercise"), ("solutions", "exercise"))
)
PATIENCE = 240  # seconds; a whole notebook takes a quarter, beside other tests on a slow machine more

POLL = 0.1  # seconds; a page that is seldom asked also takes longer to draw its cells
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
FOLDED = f"{PANEL} .jp-OutputPlaceholder"
CELLS = f"""
return [...document.querySelectorAll("{PANEL} .jp-Notebook .jp-Cell")].map(cell => ({{
    active: cell.classList.contains("jp-mod-active"),
    prompt: cell.querySelector(".jp-InputPrompt")?.textContent ?? "",
    outputs: cell.querySelectorAll(".jp-OutputArea-output").length,
    figures: [...cell.querySelectorAll(".jp-OutputArea-output img")].map(image => image.naturalWidth),
    errors: [...cell.querySelectorAll("[data-mime-type='application/vnd.jupyter.stderr']")]
        .map(error => error.textContent).join(""),
    text: cell.querySelector(".jp-OutputArea")?.textContent ?? "",
}}))
"""
# Lab calls a notebook idle before it has a kernel, too; a cell that is run then is not run.
IS_IDLE = f"""
const panel = document.querySelector("{PANEL}");
return panel?.querySelector(".jp-Notebook-ExecutionIndicator")?.dataset.status === "idle"
    && panel.querySelector(".jp-KernelName").textContent !== "No Kernel";
"""


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """After Lab and the browser have stopped, nothing that they or a notebook have started is there."""
    mark = uuid.uuid4().hex
    os.environ["FOURRANKS_BROWSER"] = mark
    yield
    del os.environ["FOURRANKS_BROWSER"]
    deadline = time.monotonic() + 5
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(POLL)
    assert not left


def _marked(mark: str) -> list[str]:
    """Processes with `mark` in their environment; one that has ended, collected or not, has none."""
    processes = psutil.process_iter(["name", "environ"])
    return [process.info["name"] for process in processes if mark in (process.info["environ"] or {}).values()]


class Notebook:
    """A notebook that is open in the browser, once all its cells are there and its kernel is ready."""

    def __init__(self, browser: Chrome, path: str, cells: int) -> None:
        self._browser = browser
        self.wait_for(lambda: path in browser.current_url and len(self.cells) == cells and self._is_idle)

    @property
    def cells(self) -> list[dict]:
        """The page's display of each cell."""
        return self._browser.execute_script(CELLS)

    def press(self, button: str) -> None:
        """Press a button of the toolbar."""
        self._click(f"{PANEL} [data-jp-item-name={button}] jp-button")

    def restart_and_run_all(self) -> None:
        """Press the button, confirm, and wait until no cell runs or waits any more."""
        self.press("restart-and-run")
        self._click(".jp-Dialog .jp-mod-accept")
        self.wait_for(lambda: any(map(_runs, self.cells)))
        self.wait_for(lambda: self._is_idle and not any(map(_runs, self.cells)))

    def run_next(self) -> dict:
        """Run the active cell, for the first time, and go on to the next; returns the cell that ran."""
        index = self._active
        self.press("run")
        self.wait_for(lambda: self._active == index + 1 and _has_run(self.cells[index]))
        return self.cells[index]

    def wait_for(self, condition: Callable[[], object]) -> None:
        try:
            WebDriverWait(self._browser, PATIENCE, POLL).until(lambda _: condition())
        except TimeoutException:
            pytest.fail(f"Nothing comes in {PATIENCE} s. The page's cells: {self.cells}")

    @property
    def _is_idle(self) -> bool:
        return self._browser.execute_script(IS_IDLE)

    @property
    def _active(self) -> int:
        return [cell["active"] for cell in self.cells].index(True)

    def _click(self, selector: str) -> None:
        wait = WebDriverWait(self._browser, PATIENCE)
        wait.until(element_to_be_clickable((By.CSS_SELECTOR, selector))).click()


def _runs(cell: dict) -> bool:
    return "*" in cell["prompt"]


def _has_run(cell: dict) -> bool:
    return cell["prompt"] == "" or cell["prompt"].strip("[]:").isdigit()  # a text cell has no prompt


@pytest.fixture
def follow(browser: Chrome, lab: str) -> Callable[[str, str], Notebook]:
    """Follows a link of the start page to a notebook."""

    def follow(link: str, path: str) -> Notebook:
        browser.get(f"{lab}lab/tree/index.md?reset")  # without the tabs of the test before
        row = f"//tr[td[contains(., '{TOPIC}')]]"
        there = element_to_be_clickable((By.XPATH, f"{row}//a[text()='{link}']"))
        WebDriverWait(browser, PATIENCE).until(there).click()
        return Notebook(browser, path, cells=len(read(path)))

    return follow


@pytest.fixture
def opened(browser: Chrome, lab: str, student_copy: Path) -> Callable[[str, NotebookNode], Notebook]:
    """Stores a notebook and opens it."""

    def opened(name: str, notebook: NotebookNode) -> Notebook:
        nbformat.write(notebook, student_copy / name)
        browser.get(f"{lab}lab/tree/{name}?reset")
        return Notebook(browser, name, cells=len(notebook.cells))

    return opened


def written(*sources: str) -> NotebookNode:
    """A notebook with these cells."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    return new_notebook(cells=[*map(new_code_cell, sources)], metadata=kernel)


def test_the_lecture_shows_no_output_before_it_is_run_and_then_all_of_it_with_its_figures(follow, browser):
    built = read(LECTURE)
    assert any(cell.get("outputs") for cell in built)
    page = follow("lecture", LECTURE)
    assert not any(cell["outputs"] for cell in page.cells)
    places = browser.find_elements(By.CSS_SELECTOR, FOLDED)
    assert not any(place.get_attribute("textContent") for place in places)
    page.restart_and_run_all()
    for cell, shown in zip(built, page.cells, strict=True):
        if cell.cell_type == "code":
            assert _has_run(shown) and bool(shown["errors"]) == may_raise(cell), (cell.source, shown)
            assert bool(shown["outputs"]) == bool(cell.outputs), cell.source
            assert len(shown["figures"]) == sum(map(has_picture, cell.outputs)), cell.source
            assert all(shown["figures"]), f"a figure is broken: {cell.source}"


def test_every_check_of_the_released_exercise_is_red_and_says_what_to_do(follow):
    page = follow("exercise", EXERCISE)
    for cell in read(EXERCISE):
        shown = page.run_next()
        if is_check(cell):
            assert "not implemented yet" in shown["errors"], cell.id
            assert "Hint: " in shown["text"], cell.id


def test_every_check_of_the_solution_is_green(follow):
    page = follow("solution", SOLUTION)
    page.restart_and_run_all()
    for cell, shown in zip(read(SOLUTION), page.cells, strict=True):
        assert _has_run(shown) and not shown["errors"], (cell.source, shown)
        if is_check(cell):
            assert shown["text"].count(": passed, ") == 2, cell.id  # what students see, and the hidden tests


def test_the_interrupt_button_frees_ranks_that_wait_in_a_collective(opened):
    notebook = written(
        "%load_ext fourranks",
        "%%ranks\nkept = rank",
        "%%ranks\nprint('on my way')\nif rank == 0:\n    import time; time.sleep(600)\ndist.barrier()",
        "%%ranks\ndist.barrier()\nkept",
    )
    page = opened("stuck.ipynb", notebook)
    page.run_next()
    page.run_next()
    page.press("run")
    page.wait_for(lambda: "[0-3] on my way" in page.cells[2]["text"])
    assert _runs(page.cells[2])

    page.press("interrupt")
    page.wait_for(lambda: not _runs(page.cells[2]))
    message = page.cells[2]["errors"]
    assert "The cell was interrupted." in message
    assert "line 5: dist.barrier()" in message and "line 4: import time" in message
    assert page.run_next()["text"] == "[0] 0\n[1] 1\n[2] 2\n[3] 3\n"


def test_a_slider_goes_through_the_rounds_and_a_stored_notebook_shows_them_all(opened, browser, student_copy):
    turns = (
        "for turn in range(3):\n    dist.send(x, 1 - rank) if turn % 2 == rank else dist.recv(x, 1 - rank)"
    )
    page = opened(
        "ping.ipynb",
        written("%load_ext fourranks\n%ranks start -n 2", f"%%ranks --steps x\nx = torch.ones(2)\n{turns}"),
    )
    page.run_next()
    page.press("run")
    page.wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "input[type=range]"))
    picture = browser.find_element(By.CSS_SELECTOR, ".jp-OutputArea-output img")
    all_rounds = picture.get_attribute("src")
    browser.find_element(By.CSS_SELECTOR, "input[type=range]").send_keys(Keys.ARROW_RIGHT)
    page.wait_for(lambda: picture.get_attribute("title") == "round 1 of 3")
    assert picture.get_attribute("src") != all_rounds
    slider = browser.find_element(By.CSS_SELECTOR, "input[type=range]")
    assert slider.get_attribute("aria-valuetext") == "round 1 of 3", "what a screen reader says"
    button = browser.find_element(By.CSS_SELECTOR, "button[aria-label=Play]")
    pressed = "arguments[0].click(); return arguments[0].getAttribute('aria-label')"
    assert browser.execute_script(pressed, button) == "Pause"
    page.wait_for(lambda: picture.get_attribute("title") == "round 3 of 3")
    page.press("save")
    page.wait_for(lambda: "image/png" in (student_copy / "ping.ipynb").read_text())

    stored = nbformat.read(student_copy / "ping.ipynb", as_version=4)
    stored.cells.pop(0)  # so that Lab has not seen it before, as after a download
    page = opened("stored.ipynb", stored)
    assert page.cells[0]["figures"][0] > 0
    assert (
        browser.find_element(By.CSS_SELECTOR, ".jp-OutputArea-output img").get_attribute("src") == all_rounds
    )
    assert not browser.find_elements(By.CSS_SELECTOR, "input[type=range]")


def test_tab_completes_and_shift_tab_explains_what_only_the_ranks_have(opened, browser):
    notebook = written(
        "%load_ext fourranks",
        "%%ranks\nmodel = torch.nn.Linear(2, 2)\nmodel.only_here = 5",
        "%%ranks\nmodel.only_h",
    )
    page = opened("completion.ipynb", notebook)
    page.run_next()
    page.run_next()

    def press(key: str, held: str | None = None) -> None:
        keys = ActionChains(browser)
        (keys.key_down(held).send_keys(key).key_up(held) if held else keys.send_keys(key)).perform()

    def editor() -> str:
        return browser.find_elements(By.CSS_SELECTOR, f"{PANEL} .jp-Cell .cm-content")[-1].text

    press(Keys.ENTER)
    page.wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, f"{PANEL} .jp-mod-active .cm-focused"))
    press(Keys.END, held=Keys.CONTROL)
    press(Keys.TAB)
    page.wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, ".jp-Completer-item"))
    press(Keys.ENTER)
    page.wait_for(lambda: editor() == "%%ranks\nmodel.only_here")
    press(Keys.TAB, held=Keys.SHIFT)
    page.wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, ".jp-Tooltip"))
    assert "String form: 5" in browser.find_element(By.CSS_SELECTOR, ".jp-Tooltip").text


def read(path: str) -> list[NotebookNode]:
    """The cells of a notebook as it was built."""
    return nbformat.read(COURSE / path, as_version=4).cells


def is_check(cell: NotebookNode) -> bool:
    return cell.id.endswith("_check")


def may_raise(cell: NotebookNode) -> bool:
    return "raises-exception" in cell.metadata.get("tags", [])


def has_picture(output: NotebookNode) -> bool:
    data = output.get("data", {})
    return "image/png" in data or "<img" in data.get("text/html", "")
