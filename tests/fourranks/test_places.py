"""A line of the reader's code, and the loops and branches around it."""

from __future__ import annotations

import linecache

import pytest

from fourranks.rank.places import line_at, place

CELL = """\
for step in range(3):
    if rank == 0:
        one()
    elif rank == 1:
        two()
    else:
        three()

def function():
    while True:
        try:
            four()
        except ValueError:
            five()

if rank: six()
"""


@pytest.fixture(params=["<ipython-input-7-0123456789ab>"])
def cell(request):
    linecache.cache[request.param] = (len(CELL), None, CELL.splitlines(keepends=True), request.param)
    yield request.param
    del linecache.cache[request.param]
    line_at.cache_clear()


@pytest.mark.parametrize(
    ("line", "text", "blocks"),
    [
        (3, "one()", ["if rank == 0:", "for step in range(3):"]),
        (5, "two()", ["elif rank == 1:", "else of if rank == 0:", "for step in range(3):"]),
        (7, "three()", ["else of elif rank == 1:", "else of if rank == 0:", "for step in range(3):"]),
        (12, "four()", ["while True:"]),
        (14, "five()", ["except ValueError:", "while True:"]),
        (16, "if rank: six()", ["if rank: six()"]),
    ],
)
def test_a_line_knows_the_loops_and_branches_of_its_function(cell, line, text, blocks):
    found = place(cell, line, "<module>")
    assert str(found) == f"Cell In[7], line {line}: {text}"
    assert [block.text for block in found.blocks] == blocks


def test_a_line_of_a_file_is_named_by_the_file():
    assert str(place(__file__, 1, "<module>")).startswith("test_places.py, line 1: ")


def test_text_that_is_no_python_has_no_blocks():
    name = "<ipython-input-8-0123456789ab>"
    linecache.cache[name] = (4, None, ["if (:\n"], name)
    assert place(name, 1, "<module>").blocks == ()


def test_what_has_no_file_is_named_by_its_function():
    assert str(place("", 0, "backward")) == "backward"
