"""A player's records survive the kernel, and a folder or file that is no good costs no game."""

from __future__ import annotations

import json
import os

import pytest

from fourranks.puzzles import board, scores
from fourranks.puzzles.records import FILE, Records, records_in

NAIVE = [" ".join(f"F{k} B{k}" for k in range(4))] * 2


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_best_score_and_the_latest_attempts_are_kept(tmp_path):
    for moves in (NAIVE, [], NAIVE):
        board("Two and four").play(moves)
    record = Records(tmp_path).of("Two and four")
    assert (record.best, record.marks) == (24, "oxo")
    assert "your record: 24" in board("Two and four")._repr_mimebundle_()["text/html"]


def test_a_worse_attempt_does_not_change_the_record(tmp_path):
    records = Records(tmp_path)
    records.add("a board", "p", 15)
    records.add("a board", "o", 20)
    assert records.of("a board").best == 15


def test_many_attempts_keep_the_file_small(tmp_path):
    records = Records(tmp_path)
    for _ in range(100):
        records.add("a board", "x", None)
    assert len(records.of("a board").marks) == 30


def test_all_attempts_are_counted_however_many_there_are(tmp_path):
    old = {"Two and four": {"best": 24, "marks": "xo"}}  # as files were written that had no count
    (tmp_path / FILE).write_text(json.dumps(old))
    for _ in range(38):
        attempt = board("Two and four").play([])
    assert Records(tmp_path).of("Two and four").attempts == 40
    assert "24/15 ticks +34 ⬛⬛⬛⬛⬛⬛" in attempt.share
    assert "<td>24</td><td>40</td>" in scores()._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"Two and four": 3}',
        '{"Two and four": {"best": "15", "marks": ""}}',
        '{"Two and four": {"best": true, "marks": ""}}',
        "\0\0\0",
        "[" * 100_000,
    ],
)
def test_a_broken_file_is_put_aside_and_said_so_once(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    attempt = board("Two and four").play(NAIVE)
    assert attempt.score == 24 and "could not be read" in attempt.note
    assert (tmp_path / "puzzle_records.broken.json").read_text() == text
    assert board("Two and four").play(NAIVE).note == ""
    assert Records(tmp_path).of("Two and four").best == 24


def test_a_file_that_is_no_text_is_put_aside(tmp_path):
    (tmp_path / FILE).write_bytes(b"\xff\xfe\xff")
    assert "could not be read" in board("Two and four").play(NAIVE).note


def test_marks_of_another_version_are_left_out(tmp_path):
    (tmp_path / FILE).write_text(json.dumps({"Two and four": {"best": 16, "marks": "x?o"}}))
    assert Records(tmp_path).of("Two and four").marks == "xo"


def test_a_folder_that_cannot_be_written_keeps_records_until_the_kernel_stops(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    records_in.cache_clear()
    (folder / "puzzle_records.partial").mkdir()  # nothing can be written there, not even by root
    note = board("Two and four").play(NAIVE).note
    assert "lasts until the kernel stops: puzzle_records.json could not be written" in note
    assert board("Two and four").play(NAIVE).record.marks == "oo"
    assert os.listdir(folder) == ["puzzle_records.partial"]


def test_a_table_lists_all_boards_with_par_and_record():
    board("Two and four").play(NAIVE)
    assert "Two and four: 24 (par 15 ticks)\nFour of eight: – (par 33 ticks)" in repr(scores())
    assert scores()._repr_mimebundle_()["text/html"].count("<tr>") == 17
