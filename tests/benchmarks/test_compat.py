"""`make compat` reports on the pairs of Python and torch that it has tried."""

import sys

import pytest

from benchmarks.classes import exercise
from benchmarks.compat import graded, report
from benchmarks.compat.trial import Pair, Trial

GOOD = {
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "date": "2026-11-24",
    "tests": {"passed": 5, "skipped": 1, "failed": []},
    "graded": {"02_collectives": {"right": {"ring": [5.0, 5.0]}, "wrong": {"ring": [0, 5.0]}}},
    "traffic": {"all_reduce": [1.001, 1.002]},
}
BAD = GOOD | {
    "torch": "2.15.0+cu132",
    "tests": {"passed": 4, "skipped": 1, "failed": ["test_a_rank"]},
    "graded": {"02_collectives": {"right": {"ring": [0, 5.0]}, "wrong": {"ring": [1, 5.0]}}},
    "traffic": {"all_reduce": [1.5, "the ranks moved 3 bytes"]},
}


@pytest.fixture
def page(tmp_path, monkeypatch):
    page = tmp_path / "compat.md"
    page.write_text(f"Above.\n{report.BEGIN}{report.END}Below.\n")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    return page


def test_the_table_says_what_ran_and_where_wrong_answers_get_other_points():
    good, bad = report.table([GOOD, BAD]).splitlines()[2:]
    assert "| 5 passed, 0 failed, 1 skipped | 5 of 5 points | 0 of 5 points | 100.10% to 100.20%" in good
    assert (
        "| 4 passed, 1 failed, 1 skipped | 0 of 5 points | 1 of 5 points, **not as above** | **another" in bad
    )


def test_a_failed_test_lost_points_and_other_traffic_are_problems():
    assert list(report.problems(GOOD)) == []
    test, points, traffic = report.problems(BAD)
    assert test == "Python 3.11.7, torch 2.15.0+cu132: test_a_rank failed"
    assert points.endswith("the solution of 02_collectives lost points for ring")
    assert "the traffic of all_reduce is [1.5," in traffic


def test_a_result_takes_the_place_of_the_one_before_and_keeps_steps_that_were_left_out(page):
    for result in (BAD, GOOD, {"python": "3.11.7", "torch": "2.13.0+cpu", "date": "2026-11-25"}):
        report.add(result)
    assert [(each["torch"], each["date"]) for each in report.load()] == [
        ("2.13.0+cpu", "2026-11-25"),
        ("2.15.0+cu132", "2026-11-24"),
    ]
    text = page.read_text()
    assert text.startswith("Above.\n") and text.endswith("Below.\n")
    assert text.count("| 3.11.7 | 2.13.0+cpu | 5 passed") == 1


def test_the_page_in_docs_has_the_table_of_the_results_that_are_kept():
    assert report.BEGIN + report.table(report.load()) + report.END in report.PAGE.read_text()


def test_a_python_that_is_not_there_is_said_so():
    with pytest.raises(RuntimeError, match="python3.99 is not on this machine"):
        Pair("3.99", "2.13.0").program  # noqa: B018 (it raises)


def test_a_step_that_ends_in_an_error_is_no_result(tmp_path):
    python = tmp_path / "3.99-2.13.0" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    with pytest.raises(RuntimeError, match="sys.exit\\(3\\) failed"):
        Trial(Pair("3.99", "2.13.0"), tmp_path)._output(["-c", "import sys; sys.exit(3)"])


@pytest.mark.parametrize("topic", graded.TOPICS)
def test_every_exercise_has_wrong_answers(topic):
    notebook = exercise(topic)
    before = [cell.source for cell in notebook.cells]
    graded._spoil(topic, notebook)
    assert any("FAILS_AS" in cell.source for cell in notebook.cells)
    assert before != [cell.source for cell in notebook.cells]


def test_a_right_and_a_wrong_submission_are_graded_in_the_sandbox(program):
    program("bwrap")
    right, wrong = (graded.grade("01_hardware_hierarchy", wrong=spoilt) for spoilt in (False, True))
    assert all(earned == most for earned, most in right.values())
    assert wrong.keys() == right.keys()
    assert all(earned < most for earned, most in wrong.values())
