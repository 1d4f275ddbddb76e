"""A student's text gets into a page: all that can be read, and nothing that a browser would run."""

from pathlib import Path
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup, Tag
from nbconvert.exporters import HTMLExporter
from nbformat import from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from traitlets.config import PyFileConfigLoader

from autograder.grading.markdown import clean
from autograder.grading.nbgrader_plugin import HideTests

COURSE = Path(__file__).parents[2]
SCRIPT = "<script>owned()</script>"
TRICKS = [
    SCRIPT,
    "<img src=x onerror=owned()>",
    "<a href='javascript:owned()'>a</a> [b](javascript:owned()) <javascript:owned()>",
    "<svg onload=owned()><iframe srcdoc='<script>owned()</script>'></iframe>",
    "<details ontoggle=owned() open>x</details><style>@import 'owned()'</style>",
    "<p style=\"background:url('javascript:owned()')\">x</p>",
    "<form action=owned()><input autofocus onfocus=owned()></form><base href=owned()><meta charset=x>",
    "$<script>owned()</script>$ and $$\\href{javascript:owned()}{x}$$",
    "```\n<script>owned()</script>\n```",
    "<!--[if IE]><script>owned()</script><![endif]--><![CDATA[<script>owned()</script>]]>",
]
RUNS = {"script", "svg", "iframe", "style", "form", "input", "base", "meta", "object", "embed", "link"}


def running(html: str) -> list[Tag]:
    """Parts that a browser would do more with than show them."""
    return [
        tag
        for tag in BeautifulSoup(html, "html.parser").find_all(True)
        if tag.name in RUNS
        or any(name.startswith("on") for name in tag.attrs)
        or any("javascript:" in str(value) for value in tag.attrs.values())
    ]


def page(*cells) -> str:
    """A feedback page's part that comes from the notebook, with the course's own settings."""
    config = PyFileConfigLoader("nbgrader_config.py", str(COURSE)).load_config()
    converter = GenerateFeedback(coursedir=CourseDirectory(config=config), config=config)
    grades = {"score": 0, "max_score": 0, "late_penalty": 0, "notebook": "exercise"}
    html, _ = HTMLExporter(config=converter.config).from_notebook_node(
        from_dict(new_notebook(cells=cells)), resources={"nbgrader": grades}
    )
    return html.split('id="notebook-container"', 1)[1]


def answer(text: str):
    fields = {"grade_id": "why", "grade": True, "solution": True, "locked": False, "points": 3, "score": 0}
    return new_markdown_cell(text, metadata={"nbgrader": fields})


def test_nothing_in_a_markdown_cell_runs():
    kinds = (answer, new_markdown_cell, new_raw_cell)
    assert running(page(*(make(trick) for trick in TRICKS for make in kinds))) == []


def test_nothing_that_a_cell_shows_runs():
    shown = {"text/plain": SCRIPT}
    outputs = [
        new_output("stream", text=f"{SCRIPT}\x1b[31m{SCRIPT}"),
        new_output("display_data", data=shown),
        new_output("error", ename=SCRIPT, evalue=SCRIPT, traceback=[SCRIPT]),
    ]
    html = page(new_code_cell(f'"{SCRIPT}"', outputs=outputs))
    assert running(html) == [] and html.count("owned()") >= 4


@pytest.mark.parametrize("code", ["38", "48", "1;038"])
def test_a_code_that_names_no_colour_ends_no_page(code):
    text = f"\x1b[{code}m<b>\x1b[31mred"
    shown = {"text/plain": text}
    outputs = [
        new_output("stream", text=text),
        new_output("display_data", data=shown),
        new_output("error", ename="E", evalue="", traceback=[text]),
    ]
    assert page(new_code_cell("", outputs=outputs)).count("&lt;b&gt;red") == 3


def test_colours_of_a_terminal_stay():
    assert 'class="ansi-red-fg">red<' in page(
        new_code_cell("", outputs=[new_output("stream", text="\x1b[31mred")])
    )


def test_what_students_write_to_be_read_stays():
    text = (
        "# Why\n\n*two* **sends** `a < b`, $x < y$ [torch](https://pytorch.org)\n\n> quoted\n\n"
        "| a | b |\n|---|--:|\n| 1 | 2 |\n\n<details><summary>more</summary>H<sub>2</sub>O</details>"
    )
    html = page(answer(text))
    for part in (
        "<h1",
        "<em>two",
        "<strong>sends",
        "a &lt; b",
        "$x &lt; y$",
        "<blockquote>",
        "<td",
        "<summary>",
    ):
        assert part in html
    assert 'href="https://pytorch.org"' in html and "<sub>2</sub>" in html


def test_text_in_tags_that_are_never_closed_takes_little_room():
    shown = clean("<p>" + "".join(f"<b title={number}>" for number in range(300)) + "<p>x" * 300)
    assert shown.count("x") >= 300 and len(shown) < 100_000


def test_it_is_no_button_of_formgrader_and_no_field():
    text = "<div class='full-credit' id='why'>click</div><span class='k mark-graded'>here</span>\n\n# why\n"
    shown = BeautifulSoup(page(new_markdown_cell(text)), "html.parser")
    assert shown.select(".full-credit, .mark-graded, #why") == []


def test_it_covers_no_button(browser, tmp_path):
    style = (
        "display:inline-block; overflow:hidden; width:4000px; height:9000px; margin:-3000px 0 -5990px -500px"
    )
    above = tmp_path / "above.html"
    content = page(answer(f'<a href="https://example.org" style="{style}">x</a>'))
    above.write_text(f'<!DOCTYPE html><p><button>No credit</button></p><div id="notebook-container"{content}')
    browser.get(above.as_uri())
    on_top = "const { x, y } = document.querySelector('button').getBoundingClientRect();"
    on_top += "return document.elementFromPoint(x + 5, y + 5).textContent"
    assert browser.execute_script(on_top) == "No credit"


def test_headings_and_code_keep_their_looks():
    shown = BeautifulSoup(page(answer("# Why\n```python\ndef f(): pass\n```")), "html.parser")
    assert shown.select_one(".highlight .k").text == "def"
    assert shown.select_one("h1 .anchor-link")


@pytest.mark.parametrize("name", ["image.png", "my image.png"])
def test_a_pasted_picture_is_shown(name):
    cell = answer(f"![it](attachment:{quote(name)})")
    cell.attachments = {name: {"image/png": "iVBORw0KGgo="}}
    assert BeautifulSoup(page(cell), "html.parser").img["src"] == "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    "text",
    [
        "![it](attachment:it.png)",
        "![it](attachment:some![it](attachment:it.png)",
        "![it](attach&#109;ent:it.png)",
        "![it][1]\n\n[1]: attachment&colon;it.png",
        "![it](<attach&#109;ent:it it.png>)",
    ],
)
def test_a_picture_that_is_not_there_ends_no_page(text):
    shown = BeautifulSoup(page(answer(text)), "html.parser")
    assert shown.find("img", alt="it")["src"] == "data:image/png;base64,"


def test_no_other_content_is_in_an_address():
    text = "[a](data:text/html,owned) <a href='da&Tab;ta:text/html,x'>b</a> <img src='data:image/svg+xml,x'>"
    shown = BeautifulSoup(page(answer(text)), "html.parser")
    assert not [tag for tag in shown.find_all(["a", "img"]) if "data" in str(tag)]


@pytest.mark.parametrize(
    "address", ["/logout", "//example.org/it.png", "https://example.org/it.png", "it.png"]
)
def test_who_opens_a_page_asks_for_no_picture(address):
    text = f"![it]({address}) <img alt='it' src='{address}'> <b style='cursor:url({address}),auto'>it</b>"
    shown = BeautifulSoup(page(answer(text)), "html.parser")
    assert [img.get("src") for img in shown.find_all("img", alt="it")] == [None, None]
    assert not shown.find("b", string="it")["style"]


def test_the_step_that_hides_tests_takes_the_settings_of_pages_without_a_warning(caplog):
    HideTests(config=HTMLExporter().default_config)
    assert caplog.text == ""
