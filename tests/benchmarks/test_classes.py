"""Generated classes: everybody has handed in something of their own, and it is known what they deserve."""

import ast
import csv
import random

import pytest

from autograder.grading.submission import SubmissionError, name_of, read
from benchmarks import classes

TOPIC, QUESTIONS = "02_collectives", ["exchange", "scatter", "gather"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class") / "course"
    classes.make(folder, 40, TOPIC, QUESTIONS)
    with (folder / "deserved.csv").open() as file:
        return folder, {row.pop("student"): row for row in csv.DictReader(file)}


def submitted(folder, student):
    return folder / "submitted" / student / TOPIC / "exercise.ipynb"


def test_everybody_hands_in_something_else(generated):
    folder, deserved = generated
    contents = {submitted(folder, student).read_bytes() for student in deserved}
    assert len(deserved) == 40 and len(contents) > 35


def test_what_they_deserve_is_what_is_right_in_it(generated):
    folder, deserved = generated
    for student, points in deserved.items():
        try:
            cells = {name_of(cell): cell.source for cell in read(submitted(folder, student)).cells}
        except SubmissionError:
            assert set(points.values()) == {"?"}
            continue
        right = {name: not is_wrong(cells[name]) for name in QUESTIONS}
        assert points == {f"{name}_check": "6" if right[name] else "0" for name in QUESTIONS}
    assert {"0", "6", "?"} == {got for points in deserved.values() for got in points.values()}


def is_wrong(source):
    return "FAILS_AS" in source or "NotImplementedError" in source


def test_who_uses_a_wrong_answer_is_not_foretold():
    answers = {"pass_right": "def pass_right(): ...", "ring": "def ring():\n    pass_right()"}
    assert classes._used("check.ring(ring)", answers) == {"ring", "pass_right"}


def test_other_names_leave_the_program_as_it_is():
    loop = "for i in range(3):\n        total += g(i, group=group)"
    source = f"def f(a, group=None):\n    total = a\n    {loop}\n    return total"
    renamed = classes._renamed(source, random.Random(0))
    assert renamed != ast.unparse(ast.parse(source))
    results = []
    for text in (source, renamed):
        names = {"g": lambda i, group: i}
        exec(text, names)
        results.append(names["f"](1))
    assert results == [4, 4]
