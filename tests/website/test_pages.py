"""Pages are fitted for reading without a kernel."""

import json
from pathlib import Path

from pygments.token import Comment, Error, Keyword

from website.cell_lexer import CellLexer
from website.pages import folded, start

COURSE = Path(__file__).parents[2]


def cell(source: str, kind: str = "code", shown: bool = True) -> dict[str, object]:
    shows = {"outputs": [{"output_type": "stream", "text": "5"}] if shown else []} if kind == "code" else {}
    return {"cell_type": kind, "source": source, "metadata": {}, **shows}


def tags(*cells: dict[str, object]) -> list[list[str]]:
    notebook = json.loads(folded(json.dumps({"cells": cells, "metadata": {"language_info": {}}})))
    return [cell["metadata"].get("tags", []) for cell in notebook["cells"]]


def test_outputs_between_a_question_and_the_next_text_are_folded():
    asked = cell("guess = None  # your prediction: a number", shown=False)
    assert tags(cell("1 + 1"), asked, cell("2 + 3"), cell("so", "markdown"), cell("3 + 3")) == [
        [],
        [],
        ["hide-output"],
        [],
        [],
    ]


def test_a_cell_that_shows_nothing_is_not_folded():
    assert tags(cell("guess = None  # your answer"), cell("x = 1", shown=False)) == [[], []]


def test_tags_that_a_cell_has_are_kept():
    raising = cell("1 / 0")
    raising["metadata"] = {"tags": ["raises-exception"]}
    assert tags(cell("guess = None  # your predictions"), raising)[1] == ["raises-exception", "hide-output"]


def test_each_lecture_has_folded_outputs_and_open_ones():
    for path in COURSE.glob("lectures/*/lecture.ipynb"):
        cells = json.loads(folded(path.read_text()))["cells"]
        shown = [cell["metadata"].get("tags", []) for cell in cells if cell.get("outputs")]
        assert 0 < sum("hide-output" in tags for tags in shown) < len(shown), path


def test_the_start_page_says_that_nothing_runs_here_and_links_no_solution():
    page = start(COURSE)
    assert "(lectures/00_hello/lecture.ipynb)" in page
    assert page.index("{note}") < page.index("**Begin here:**")
    assert "solutions/" not in page


def test_each_cell_is_coloured_without_a_token_that_no_rule_knows():
    lexer = CellLexer()
    for path in COURSE.glob("lectures/*/lecture.ipynb"):
        notebook = json.loads(folded(path.read_text()))
        assert notebook["metadata"]["language_info"]["pygments_lexer"] == lexer.name
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                source = "".join(cell["source"])
                assert Error not in dict(lexer.get_tokens(source)), (path, source)


def test_lines_for_ipython_are_coloured_and_what_follows_is_python():
    tokens = list(CellLexer().get_tokens("%%ranks --trace\n!ls -l $HOME\n  %run a.py\nfor x in 8 % 3: pass"))
    assert [text for kind, text in tokens if kind is Comment.Preproc] == [
        "%%ranks --trace\n",
        "!ls -l $HOME\n",
        "  %run a.py\n",
    ]
    assert (Keyword, "for") in tokens
