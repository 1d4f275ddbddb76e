"""The board in shared memory, as its writer and another rank see it."""

from __future__ import annotations

import os

import pytest

from fourranks.protocol import board


@pytest.fixture
def boards():
    descriptor = board.create(2)
    yield board.Board(descriptor, 0), board.Board(descriptor, 1)
    os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux keeps the size of files in memory")
def test_a_board_has_its_size_for_good():
    descriptor = board.create(2)
    for change in (lambda: os.ftruncate(descriptor, 1 << 20), lambda: os.pwrite(descriptor, b".", 1 << 20)):
        with pytest.raises(PermissionError):
            change()
    os.close(descriptor)


@pytest.mark.parametrize("lasting", [False, True])
def test_what_a_rank_posts_stays_while_it_runs_a_hundred_calls_ahead(boards, lasting):
    writer, reader = boards
    keys = [hash((0, number)) for number in range(100)]
    for value, key in enumerate(keys):
        writer.post(key, value, lasting)
    assert [reader.read(0, key, lasting) for key in keys] == list(range(100))


def test_a_later_value_takes_the_place_of_the_one_under_the_same_key(boards):
    writer, reader = boards
    writer.post(5, 1)
    writer.post(5, 2)
    assert reader.read(0, 5) == 2
    writer.take_down(5)
    assert reader.read(0, 5) is None


def test_each_rank_clears_only_what_it_has_posted(boards):
    for rank, each in enumerate(boards):
        each.post(7, rank)
    boards[0].clear()
    assert [boards[1].read(rank, 7) for rank in (0, 1)] == [None, 1]
