"""A cell's outcome is shown as text and pictures, as much of it as people read, and all of it visible."""

import base64
import io

import pytest
from PIL import Image

from autograder.grading import outputs
from autograder.kit.mistakes import RAISED
from autograder.kit.problem import MAX_GOT, Problem
from autograder.sandbox.student_process import Shown


def test_an_error_is_cut_wherever_its_text_comes_from():
    error = outputs.raised("E" * 4_000_000, "x" * 4_000_000, "line\n" * 1_000_000)
    assert len(str(error)) < 250_000
    assert "(4,000,000 characters)" in error.evalue


def test_an_error_shows_what_a_terminal_would_hide():
    error = outputs.raised("E", "\x1b[8mpassed\x07", "in \u202ea line\nand another")
    assert error.evalue == "passed\\x07"
    assert error.traceback == ["in \\u202ea line", "and another"]


def test_what_is_printed_keeps_its_colours_and_progress_bars():
    assert outputs.printed("\x1b[31m10 %\r20 %\x08\x00").text == "\x1b[31m10 %\r20 %\x08\\x00"


@pytest.mark.parametrize("shown", [Shown(text="x" * 10**7), Shown(displays=({"text/plain": "x" * 10**7},))])
def test_what_a_cell_shows_at_a_time_is_cut(shown):
    assert len(str(outputs.of_student_cell(shown))) < 101_000


@pytest.mark.parametrize(("side", "shown"), [(9_000, True), (9_500, False)])
def test_a_picture_is_shown_unless_a_browser_would_take_gigabytes_for_it(side, shown):
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    picture = {"text/plain": "it", "image/png": base64.b64encode(file.getvalue()).decode()}
    (output,) = outputs.of_student_cell(Shown(displays=(picture,)))
    assert output.data == (picture if shown else {"text/plain": "it"})


@pytest.mark.parametrize("content", ["", "iVBORw0KGgo=", "A" * 1000, "iVBORw0KGg", "é", "<svg/>"])
def test_what_has_no_size_is_no_picture(content):
    assert outputs.of_student_cell(Shown(displays=({"image/png": content},))) == []


def test_what_a_check_found_is_cut_and_visible():
    got = Problem(RAISED, "1", "\x1b[31m2\x1b[0m" + "\u202e" + "x" * 4_000_000).got
    assert got.startswith("2\\u202exxx") and len(got) < MAX_GOT + 100
