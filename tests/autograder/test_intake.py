"""Submissions are read where memory and time have an end, once, whatever is in them."""

import json
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from autograder.grading import intake
from autograder.grading.intake import HandedIn
from autograder.grading.pool import usable_cores
from autograder.grading.submission import SubmissionError

CELL = {"cell_type": "code", "source": "x = 1", "metadata": {"nbgrader": {"grade_id": "f"}}}
NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [CELL]}
HUNDRED_MB = 100 << 20


@pytest.fixture
def handed_in(tmp_path: Path) -> Callable[..., HandedIn]:
    def write(content: object, name: str = "ada") -> HandedIn:
        path = tmp_path / name / "exercise.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return HandedIn(path, tmp_path / "refereed" / name / "exercise.read")

    return write


def with_metadata(text: str) -> str:
    return json.dumps(NOTEBOOK).replace('"metadata": {},', f'"metadata": {{"of my own": {text}}},')


def test_a_notebook_comes_out_as_its_text_and_names(handed_in):
    (cell,) = intake.read(handed_in(NOTEBOOK)).cells
    assert (cell.source, cell.metadata.nbgrader.grade_id) == ("x = 1", "f")


def test_a_notebook_that_the_grader_may_not_read_stops_nothing(handed_in, monkeypatch):
    one = handed_in(NOTEBOOK)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may read all
    intake.read_all([one], [tuple(usable_cores())])
    with pytest.raises(SubmissionError, match="change its permissions"):
        intake.known(one)


def test_a_notebook_that_would_take_gigabytes_costs_the_reader_and_nobody_else(handed_in):
    bomb = handed_in(with_metadata(f"[{','.join(['{}'] * 21_000_000)}]"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SubmissionError, match="takes more than 1024 MiB of memory"):
        intake.read(bomb)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < HUNDRED_MB


@pytest.mark.parametrize(
    "text",
    [
        "1" * 10_000_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        '"\\ud800"',
        "1e999",
        "NaN",
        "-Infinity",
        '{"cells": 1, "cells": 2, "cells": {}}',
        f'"{"A" * 10_000_000}"',
    ],
    ids=lambda text: text[:12],
)
def test_metadata_that_is_odd_is_left_out_or_refused(text, handed_in):
    one = handed_in(with_metadata(text))
    try:
        assert [cell.source for cell in intake.read(one).cells] == ["x = 1"]
    except SubmissionError as error:
        assert "is not a notebook" in str(error) and len(str(error)) < 1_000


@pytest.mark.parametrize("version", [None, -1, 2, 3, 5, 10**9, "4", [4], {"4": 4}, 1e308])
def test_a_format_of_any_number_is_read_or_refused(version, handed_in):
    one = handed_in(NOTEBOOK | {"nbformat": version, "worksheets": [{"cells": [CELL | {"input": "x = 1"}]}]})
    try:
        intake.read(one)
    except SubmissionError as error:
        assert str(one.path) in str(error) and len(str(error)) < 1_000


def test_noise_is_refused_without_an_error_of_ours(handed_in):
    noise = random.Random(0)
    whole = json.dumps(NOTEBOOK | {"cells": [CELL] * 20})
    several = []
    for number in range(50):
        place, length = noise.randrange(len(whole)), noise.randrange(40)
        several.append(handed_in(whole[:place] + whole[place + length :], f"student{number}"))
    intake.read_all(several, [(core,) for core in usable_cores()])
    for one in several:
        try:
            assert len(intake.known(one).cells) <= 20
        except SubmissionError as error:
            assert "is not a notebook" in str(error)


def test_who_brings_the_reader_down_costs_nobody_else_theirs(handed_in, monkeypatch):
    monkeypatch.setattr(intake, "MEMORY", 200 << 20)
    bombs = [handed_in(with_metadata(f"[{'{},' * 4_000_000}{{}}]"), f"eve{number}") for number in range(3)]
    honest = [handed_in(NOTEBOOK, f"ada{number}") for number in range(10)]
    intake.read_all([*bombs, *honest], [(core,) for core in usable_cores()])
    assert [len(intake.known(one).cells) for one in honest] == [1] * 10
    for bomb in bombs:
        with pytest.raises(SubmissionError, match="memory"):
            intake.known(bomb)


def test_what_takes_too_long_is_refused(handed_in, monkeypatch):
    monkeypatch.setattr(intake, "SECONDS", 0.0)
    with pytest.raises(SubmissionError, match="had not ended after 0 s"):
        intake.read(handed_in(NOTEBOOK))


@pytest.mark.parametrize("content", [NOTEBOOK, "See my other folder."], ids=["a notebook", "no notebook"])
def test_nothing_is_read_twice_unless_it_has_changed_or_is_to_be(content, handed_in, monkeypatch):
    one = handed_in(content)
    intake.read_all([one], [(usable_cores()[0],)])
    with monkeypatch.context() as patch:
        patch.setattr(intake, "Pool", None)  # a reader needs it
        intake.read_all([one], [(usable_cores()[0],)])
        assert intake.known(one) if content is NOTEBOOK else pytest.raises(SubmissionError, intake.known, one)
        intake.forget(one)
        with pytest.raises(TypeError):
            intake.read_all([one], [(usable_cores()[0],)])
    handed_in(NOTEBOOK | {"cells": [CELL, CELL]})
    with pytest.raises(SubmissionError, match="changed while it was being graded"):
        intake.known(one)
    assert len(intake.read(one).cells) == 2


def test_what_was_refused_stays_refused_until_it_is_forgotten(handed_in):
    one = handed_in(NOTEBOOK)
    intake.refuse(one, "it had not ended after 2400 s")
    with pytest.raises(SubmissionError, match="2400 s"):
        intake.read(one)
    intake.forget(one)
    assert len(intake.read(one).cells) == 1


def test_where_nothing_can_be_kept_it_is_no_fault_of_the_notebook_s_and_is_tried_again(handed_in):
    one = handed_in(NOTEBOOK)
    folder = one.kept.parent
    folder.parent.mkdir()
    folder.write_text("a file where a folder has to be")
    (reason,) = intake.read_all([one], [tuple(usable_cores())]).values()
    assert "FileExistsError" in reason and not intake.refuse(one, reason)
    with pytest.raises(SubmissionError, match="FileExistsError"):
        intake.read(one)
    folder.unlink()
    assert len(intake.read(one).cells) == 1


def test_a_file_that_is_not_whole_is_read_again(handed_in):
    one = handed_in(NOTEBOOK)
    intake.read(one)
    one.kept.write_text('{"digest": "')
    assert len(intake.read(one).cells) == 1
