"""Records of a submission, and when it is to be run again."""

import os
import shutil
import subprocess
import sys
from copy import deepcopy

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from autograder.grading import records
from autograder.grading.dependencies import fingerprint
from autograder.grading.records import NotebookRecord, Terms
from autograder.sandbox.tiers import Tier
from tests.classroom import COURSE

CHECK, OTHER = "check.exchange(exchange)", "check.algbw(algbw)\ncheck.busbw(busbw)"
ANY = Terms()


def notebook(answer="def exchange(): ...", check=CHECK, points=5):
    test = {"grade": True, "solution": False, "locked": True, "points": points}
    return new_notebook(
        cells=[
            new_markdown_cell("# A topic"),
            new_code_cell(answer, metadata={"nbgrader": {"grade_id": "exchange", "solution": True}}),
            new_code_cell(check, metadata={"nbgrader": {"grade_id": "exchange_check"} | test}),
            new_code_cell(OTHER, metadata={"nbgrader": {"grade_id": "algbw_check"} | test}),
        ]
    )


def cells(**changes):
    return records.cells_of(notebook(**changes))


@pytest.fixture
def record():
    """The outcome of the notebook, with one secret."""
    ran = cells()
    for cell in ran:
        cell.outputs = [new_output("stream", name="stdout", text=f"{cell.name}: ünder 2 s")]
        cell.seconds = 1.5
        if cell.is_test:
            cell.secret, cell.fingerprint = "old", fingerprint(cell.source)
    return NotebookRecord(tier=Tier.NAMESPACES, repairs=["a cell was missing"], cells=ran)


def held(record, terms=ANY, **changes):
    known = record.holding(cells(**changes), terms)
    return None if known is None else sorted(known)


def test_a_record_comes_back_as_it_was_saved(record, tmp_path):
    path = records.path_of(tmp_path, "02_collectives", "ada", "exercise")
    records.save(record, path)
    assert records.load(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["exercise.json"]


def test_a_record_that_is_not_whole_counts_as_none(record, tmp_path):
    path = tmp_path / "exercise.json"
    assert records.load(path) is None
    records.save(record, path)
    whole = path.read_bytes()
    for broken in (whole[:-40], b"", b"null", b"[]", b'{"cells": []}', whole.replace(b"secret", b"secrets")):
        path.write_bytes(broken)
        assert records.load(path) is None


def test_all_holds_as_long_as_nothing_has_changed(record):
    assert held(record) == ["algbw_check", "exchange_check"]


def test_nothing_holds_for_another_answer_or_another_order(record):
    assert held(record, answer="def exchange(): return 1") is None
    moved = notebook()
    moved.cells.append(moved.cells.pop(1))
    assert record.holding(records.cells_of(moved), Terms()) is None


def test_a_test_that_was_changed_is_run_again_and_no_other(record):
    assert held(record, check=CHECK + "\ncheck.exchange(exchange, seed=7)") == ["algbw_check"]


def test_a_test_whose_check_was_changed_is_run_again_and_no_other(record):
    record.tests[0].fingerprint = "of a version before"
    assert held(record) == ["algbw_check"]


def test_a_test_that_was_changed_is_run_again_although_another_one_is_asked_for(record):
    assert held(record, Terms(only="busbw"), check=f"{CHECK}  # as it is now") == ["algbw_check"]


def test_a_test_without_outputs_is_run_again(record):
    record.tests[1].outputs = []
    assert held(record) == ["exchange_check"]


def test_who_asks_for_a_secret_gets_what_was_drawn_from_it(record):
    record.tests[1].secret = "new"
    assert held(record, Terms(secret="new")) == ["algbw_check"]


def test_what_ran_without_a_sandbox_holds_only_where_none_is_asked_for(record):
    record.tier = Tier.NONE
    assert held(record) is None
    assert held(record, Terms(Tier.NONE)) == ["algbw_check", "exchange_check"]


def test_what_ran_in_a_sandbox_holds_unless_a_stronger_one_is_asked_for(record):
    record.tier = Tier.LANDLOCK
    assert held(record) == held(record, Terms(Tier.LANDLOCK)) == ["algbw_check", "exchange_check"]
    assert held(record, Terms(Tier.NAMESPACES)) is None


@pytest.mark.parametrize("only", ["exchange", "exchange_check"])
def test_when_one_check_is_asked_for_all_others_stand(record, only):
    for cell in record.tests:
        cell.fingerprint = "of a version before"
    assert held(record, Terms(only=only)) == ["algbw_check"]
    assert held(record, Terms(only=only), answer="def exchange(): return 1") is None


@pytest.mark.parametrize(
    ("only", "left"), [("", []), ("busbw", ["exchange_check"]), ("exchange_check", ["algbw_check"])]
)
def test_what_is_forgotten_is_run_again(record, only, left, tmp_path):
    path = tmp_path / "exercise.json"
    records.save(record, path)
    records.forget(path, Terms(only=only))
    assert held(records.load(path)) == left


def test_a_digest_tells_of_all_that_a_grade_is_made_from():
    digests = {
        records.digest(each)
        for each in (notebook(), notebook(answer="1"), notebook(check="1"), notebook(points=6))
    }
    ran = notebook()
    ran.cells[2].outputs = [new_output("stream", name="stdout", text="passed\n")]
    assert len(digests | {records.digest(ran)}) == 5
    again = deepcopy(ran)
    again.cells[2].execution_count, again.cells[2].id = 3, "another"
    again.cells[2].metadata.nbgrader.points = 5.0
    assert records.digest(again) == records.digest(ran)


@pytest.fixture
def course(tmp_path):
    """A copy of the code that checks are made of, and a way to ask it for fingerprints."""
    for package in ("autograder", "fourranks"):
        shutil.copytree(COURSE / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    ask = "import sys; from autograder.grading.dependencies import fingerprint as f; "
    ask += "print(*map(f, sys.argv[1:]))"

    def fingerprints():
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", ask, CHECK, OTHER]
        return subprocess.check_output(command, cwd=tmp_path, env=environment, text=True).split()

    return tmp_path, fingerprints


@pytest.mark.parametrize(
    ("changed", "exchange", "algbw"),
    [
        ("autograder/topics/collectives/checks.py", True, False),
        ("autograder/topics/benchmarking/bandwidths.py", False, True),
        ("autograder/kit/judge.py", True, True),
        ("autograder/inside/broker.py", True, True),
        ("fourranks/rank/recorder.py", True, True),
        ("autograder/topics/tensor_parallelism/checks.py", False, False),
        ("autograder/grading/report.py", False, False),
    ],
)
def test_a_fingerprint_changes_with_the_code_of_its_checks_and_all_that_they_use(
    course, changed, exchange, algbw
):
    folder, fingerprints = course
    before = fingerprints()
    (folder / changed).write_text((folder / changed).read_text() + "\n# changed\n")
    assert [new != old for new, old in zip(fingerprints(), before, strict=True)] == [exchange, algbw]
