"""The points of a test cell: all or none, but where a check or the cell itself says how many."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade

from autograder.grading import outputs, referee
from autograder.notebooks import source
from autograder.sandbox.student_process import StudentProcess
from fourranks.figures import published

COURSE = Path(__file__).parents[2]
CHECK = "check.parse_topology(parse_topology)"
TWICE = f"{CHECK}\n{CHECK.replace(')', ', names=(), seed=1)')}"


@pytest.fixture(scope="module")
def solution() -> str:
    notebook = source.read(COURSE / "source" / "01_hardware_hierarchy" / "exercise.py", "exercise")
    (cell,) = (cell for cell in notebook.cells if cell.id == "parse_topology")
    return f"import itertools, os, re\n{cell.source}"


@pytest.fixture(scope="module")
def grade() -> Iterator[Callable[..., NotebookNode]]:
    """Grades a test cell worth 12 points after a cell of a student's; returns the test cell."""

    def grade(test: str, answer: str = "") -> NotebookNode:
        fields = {"grade_id": "test", "grade": True, "solution": False, "locked": True, "points": 12}
        cell = new_code_cell(test, metadata={"nbgrader": fields})
        referee.run(new_notebook(cells=[new_code_cell(answer), cell]), student, secret="a secret")
        return cell

    with StudentProcess() as student:
        yield grade


def points(cell: NotebookNode) -> float:
    return determine_grade(cell)[0]


@pytest.fixture(scope="module")
def reads_no_terminal_codes(solution) -> str:
    old = 're.sub(r"\\x1b\\[\\d*m", "", text)'
    assert solution.count(old) == 1
    return solution.replace(old, "text")


def test_listings_that_are_read_right_earn_their_part(grade, reads_no_terminal_codes):
    cell = grade(CHECK, reads_no_terminal_codes)
    assert points(cell) == pytest.approx(12 * 21 / 22, abs=0.01)
    assert f"worth {points(cell) / 12:.0%} of the points" in str(cell.outputs)
    assert outputs.failure(cell.outputs).message.startswith("parse_topology: an exception (1 of 22 ")


def test_many_listings_that_raise_lose_their_own_parts_only(grade, solution):
    reads_one_digit = solution.replace(r"NV\d+", r"NV\d", 1)
    with_two_digits = sum("NV1" in published.topology(name) for name in published.TOPOLOGIES)
    cell = grade(CHECK.replace(")", ", seed=1)"), reads_one_digit)
    failed = int(re.search(r"exception \((\d+) of 22 ", outputs.failure(cell.outputs).message)[1])
    assert 2 < with_two_digits <= failed <= with_two_digits + 3  # and the machine that is made up
    assert points(cell) == pytest.approx(12 * (22 - failed) / 22, abs=0.01)


def test_all_checks_of_a_cell_are_run_and_count_the_same(grade, reads_no_terminal_codes):
    once, twice = (points(grade(test, reads_no_terminal_codes)) for test in (CHECK, TWICE))
    assert once < twice < 12  # the second one draws no listing with terminal codes
    assert twice == pytest.approx((once + 12) / 2, abs=0.01)


def test_refusing_everything_earns_nothing(grade):
    assert points(grade(CHECK, "def parse_topology(text):\n    raise ValueError('no listing')")) == 0


def test_a_parser_that_ends_its_process_loses_the_listing_that_ends_it(grade, solution):
    dying = solution.replace("lines = [", 'if "\\x1b" in text: os._exit(1)\n    lines = [', 1)
    fatal = sum("\x1b" in published.topology(name) for name in published.TOPOLOGIES)
    assert fatal and points(grade(CHECK, dying)) == pytest.approx(12 * (22 - fatal) / 22, abs=0.01)


def test_a_check_of_another_question_has_all_points_or_none(grade):
    wrong_at_one_end = "def attainable_flops(i, peak, bandwidth):\n    return i * bandwidth"
    assert points(grade("check.attainable_flops(attainable_flops)", wrong_at_one_end)) == 0


@pytest.mark.parametrize(
    ("test", "earned"),
    [
        ("2.5 * (double(1) == 2) + 5 * (double(2) == 3)", 2.5),
        ("earned = 0\nif double(1) == 2: earned += 7\nearned", 7),
        ("double(1) == 2", 12),  # no number, as nbgrader has it
        ("assert double(1) == 2\n'well done'", 12),
        ("assert double(1) == 3\n12", 0),
        ("13", 0),
        ("-1", 0),
    ],
)
def test_a_test_cells_last_number_is_its_points(test, earned, grade):
    assert points(grade(test, "def double(x):\n    return 2 * x")) == earned


def test_a_number_beyond_the_cells_points_is_said_to_be_one(grade):
    assert "came to 13 points, of 12" in grade("13").outputs[-1].evalue
