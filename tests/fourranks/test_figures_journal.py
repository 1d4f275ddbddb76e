"""Lectures' files beside their notebooks, whatever happens to the file or the folder."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from fourranks.figures import strategies
from fourranks.figures.journal import FOLDER, Journal


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """The folder of a lecture, in which this process works."""
    folder = tmp_path / "lectures" / "05_sharded"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def kept():
    """The entries that a new kernel finds."""
    return Journal("notes").records()


def test_records_outlive_the_kernel_and_the_last_one_of_a_key_counts(notebook):
    journal = Journal("notes")
    journal.keep("a", {"answer": 1})
    journal.keep("b", {"answer": 2})
    journal.keep("a", {"answer": 3})
    assert kept() == journal.records() == {"a": {"answer": 3}, "b": {"answer": 2}}


def test_this_kernel_finds_what_the_next_one_will_find(notebook):
    journal = Journal("notes")
    journal.keep("a", {"answer": (1, Path("x"))})
    assert journal.records() == kept() == {"a": {"answer": [1, "x"]}}


def test_a_broken_line_costs_no_other(notebook):
    Journal("notes").keep("a", {"answer": 1})
    with (notebook / FOLDER / "notes.jsonl").open("ab") as file:
        file.write(b'{"key": 1, "record": {}}\n[]\n\xff\xfe\n{"key": "b", "rec')  # the last one broke off
    Journal("notes").keep("c", {"answer": 3})
    assert kept() == {"a": {"answer": 1}, "c": {"answer": 3}}


def test_neighbours_are_read_and_other_folders_are_not(notebook):
    for name in ("04_data", "drafts"):
        folder = notebook.parent / name / FOLDER
        folder.mkdir(parents=True)
        (folder / "notes.jsonl").write_text(json.dumps({"key": name, "record": {}}))
    Journal("notes").keep("here", {})
    assert kept().keys() == {"04_data", "here"}


def test_a_folder_that_cannot_be_written_costs_only_the_memory(notebook):
    (notebook / FOLDER).write_text("a file where the folder would be: also root cannot write into it")
    journal = Journal("notes")
    journal.keep("a", {"answer": 1})
    assert journal.records() == {"a": {"answer": 1}}
    assert kept() == {}


def keep_many(folder: Path, writer: int) -> None:
    import os

    os.chdir(folder)
    journal = Journal("notes")
    for number in range(50):
        journal.keep(f"{writer} {number}", {"text": "x" * 200})


def test_two_notebooks_that_write_at_once_lose_nothing(notebook):
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        list(pool.map(keep_many, [notebook] * 2, range(2)))
    assert len(kept()) == 100


@pytest.fixture
def losses(notebook, monkeypatch):
    monkeypatch.setattr(strategies, "_journal", Journal("losses"))


def test_kept_losses_are_those_of_the_same_model_in_the_order_of_the_course(losses, notebook):
    for name, first in {"mine": 4.5, "FSDP": 4.5, "DDP": 4.6, "one process": 4.5004}.items():
        strategies.keep(name, [first, 3.0])
    assert list(strategies.kept(4.5)) == ["one process", "FSDP", "mine"]


@pytest.mark.parametrize("record", [{}, {"losses": 3}, {"losses": []}, {"losses": [4.5, "3"]}])
def test_losses_that_someone_damaged_are_left_out(losses, notebook, record):
    Journal("losses").keep("DDP", record)
    assert strategies.kept(4.5) == {}


def test_the_figure_says_which_earlier_lectures_were_not_run(losses, capsys):
    strategies.over_one_another({"one process": [4.5, 3.0], "FSDP": [4.5, 3.0]}, "Losses")
    assert capsys.readouterr().out.splitlines() == [
        "Not drawn, until their lectures have been run beside this one: DDP (04)"
    ]


def test_trainings_are_compared_step_by_step():
    lines = {"one process": [4.5, 3.0, 2.0], "DDP": [4.5, 3.5]}
    assert strategies.apart(lines, "one process") == {"DDP": [0.0, 0.5]}
