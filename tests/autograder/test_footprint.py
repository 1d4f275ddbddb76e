"""A process's memory is known from outside, also memory that it has let go of meanwhile."""

import os
import queue

import pytest

from autograder.inside.footprint import Footprint, MemoryWatch

MIB = 1 << 20


@pytest.fixture
def itself():
    return Footprint(os.getpid())


def test_it_is_what_was_taken_since_the_beginning(itself):
    taken = bytearray(b"1" * (64 * MIB))
    assert 64 * MIB <= itself.most() < 160 * MIB
    del taken


def test_the_most_is_kept_until_it_is_asked_for(itself):
    taken = bytearray(b"1" * (64 * MIB))
    itself.look()
    del taken
    assert itself.most() >= 64 * MIB
    assert itself.most() < 32 * MIB


def test_a_watch_tells_who_has_grown_and_by_how_much():
    noted: queue.Queue[tuple[int, int]] = queue.Queue()
    MemoryWatch(lambda *note: noted.put(note)).add(os.getpid())
    taken = bytearray(b"1" * (64 * MIB))
    while (note := noted.get(timeout=10))[1] < 64 * MIB:
        assert note[0] == os.getpid()
    del taken
