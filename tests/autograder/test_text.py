"""Names and output of students are shown short, visible and as no formula."""

import pytest

from autograder.kit.text import MAX_LINE, line, shortened, table_cell, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße, 你好 \N{SNOWMAN}", "Grüße, 你好 \N{SNOWMAN}"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("over\rwritten \x08 \x00 \x9b", "over\\rwritten \\x08 \\x00 \\x9b"),
        ("exercise\u202efdp.ipynb", "exercise\\u202efdp.ipynb"),
        ("half a pair \ud800", "half a pair \\ud800"),
        ("a line\u2028or two", "a line\\u2028or two"),
    ],
)
def test_characters_that_cannot_be_seen_are_shown_as_escapes(text, shown):
    assert visible(text) == shown


def test_a_long_text_is_cut_and_says_how_long_it_was():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd" * 1000, 4) == "abcd … (4,000 characters)"


def test_a_line_is_one_line_of_bounded_length():
    assert line("one\ntwo") == "one\\ntwo"
    assert len(line("x" * 4_000_000)) < MAX_LINE + 50


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "\\t=1"),
        ("\r=1", "\\r=1"),
        ("Eve;=1;-2;", "Eve;'=1;'-2;"),  # a semicolon ends a cell where commas are for decimals
        ('Eve; "=1"', 'Eve;\' "=1"'),
        ("Ada; a-b@c", "Ada; a-b@c"),
    ],
)
def test_no_cell_of_a_table_is_a_formula(text, shown):
    assert table_cell(text) == shown


def test_a_cell_of_a_table_is_one_line():
    assert table_cell("Eve\n7,Ada,100") == "Eve\\n7,Ada,100"
