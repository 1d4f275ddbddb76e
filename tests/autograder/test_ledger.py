"""Ranks' records of calls are held against what witnesses have noted."""

import dataclasses

import pytest

from autograder.inside import ledger
from autograder.inside.ledger import Contradiction, Ledger
from autograder.inside.moments import Moment
from fourranks.trace import Call

PIDS = [11, 12]
ALL_REDUCE = Call("all_reduce", "0", (0, 1), shape=(3,), dtype="float32", nbytes=12, reduce_op="SUM", line=7)
SEND = dataclasses.replace(ALL_REDUCE, op="send", peer=1, reduce_op=None)
RECV = dataclasses.replace(SEND, op="recv", peer=0)


@pytest.fixture
def noted():
    made = Ledger()
    yield made
    made.close()


def begins(noted: Ledger, pid: int, number: int, call: Call, when: float = 1.0) -> None:
    """As a witness notes it, which knows no line and no name that the rank has for the group."""
    noted.begins(pid, number, dataclasses.replace(call, group="", line=0, start=when))


def test_a_record_that_tells_what_was_called_is_confirmed(noted):
    begins(noted, 11, 0, ALL_REDUCE)
    begins(noted, 12, 0, ALL_REDUCE)
    begins(noted, 11, 1, SEND)
    told = [[ALL_REDUCE, SEND], [dataclasses.replace(ALL_REDUCE)]]
    assert noted.read(PIDS).confirmed(told) == told
    assert [call.line for call in told[0]] == [7, 7]


def test_calls_are_given_back_in_the_order_in_which_they_were_made(noted):
    begins(noted, 11, 0, SEND)
    begins(noted, 11, 1, ALL_REDUCE)
    assert noted.read(PIDS).confirmed([[ALL_REDUCE, SEND], []])[0] == [SEND, ALL_REDUCE]


def test_when_a_call_was_made_and_over_is_for_the_witness_to_say(noted):
    begins(noted, 11, 0, ALL_REDUCE, when=1.0)
    noted.ends(11, 0, peer=None, when=2.0)
    begins(noted, 12, 0, RECV, when=2.0)
    noted.ends(12, 0, peer=0, when=5.0)
    forged = dataclasses.replace(ALL_REDUCE, start=float("nan"), end=9.0, completed=9.0, waited=8.0)
    (reduced,), (received,) = noted.read(PIDS).confirmed([[forged], [dataclasses.replace(RECV, end=9.0)]])
    assert (reduced.start, reduced.end, reduced.completed, reduced.waited) == (1.0, 2.0, None, 0.0)
    assert (received.start, received.end) == (2.0, 5.0)


def test_a_rank_that_has_not_waited_for_a_call_has_not_seen_its_end(noted):
    begins(noted, 11, 0, ALL_REDUCE)
    noted.ends(11, 0, peer=None, when=2.0)
    assert noted.read(PIDS).confirmed([[ALL_REDUCE], []])[0][0].end is None


def test_two_calls_that_a_rank_gave_one_number_are_both_on_record(noted):
    begins(noted, 11, 0, ALL_REDUCE)
    begins(noted, 11, 1, SEND)
    with pytest.raises(Contradiction, match="has called all_reduce, which its record conceals"):
        noted.read(PIDS).confirmed([[SEND], []])


def test_a_call_that_was_refused_was_not_made(noted):
    noted.refuses(11, dataclasses.replace(SEND, group="", line=0))
    begins(noted, 11, 0, SEND)
    assert noted.read(PIDS).confirmed([[SEND, dataclasses.replace(SEND)], []]) == [[SEND], []]
    with pytest.raises(Contradiction, match="tells of send, which it has not called"):
        noted.read(PIDS).confirmed([[SEND, SEND, SEND], []])


def test_moments_are_those_that_the_witness_has_noted(noted):
    noted.marks(12, Moment("began", 1.5))
    noted.marks(99, Moment("began", 2.5))
    noted.marks(12, Moment("ended", 2.5, 4096))
    assert noted.read(PIDS).moments == [[], [Moment("began", 1.5), Moment("ended", 2.5, 4096)]]


def test_a_wait_for_a_future_ends_after_what_came_before_it_though_a_busy_witness_notes_that_later(noted):
    begins(noted, 11, 0, ALL_REDUCE)
    noted.ends(11, 0, peer=None, when=2.0, by_future=True)
    noted.marks(11, Moment("ready", 7.0), told=3.0)
    noted.marks(11, Moment("ready", 9.0), told=5.0)
    reduced = noted.read(PIDS).confirmed([[dataclasses.replace(ALL_REDUCE, end=4.0)], []])[0][0]
    assert reduced.end == 7.0


def test_a_message_that_nobody_waited_for_has_not_come(noted):
    begins(noted, 12, 0, RECV)
    ((), (call,)) = noted.read(PIDS).confirmed([[], [dataclasses.replace(RECV, end=9.0)]])
    assert call.end is None


def test_from_whom_a_message_came_is_known_when_it_has_come(noted):
    begins(noted, 12, 0, dataclasses.replace(RECV, peer=None))
    noted.ends(12, 0, peer=0, when=5.0)
    assert noted.read(PIDS).confirmed([[], [RECV]])[1] == [RECV]


def test_a_call_that_was_made_and_not_told_is_found(noted):
    begins(noted, 12, 0, ALL_REDUCE)
    with pytest.raises(Contradiction, match=r"rank 1 has called all_reduce, which its record conceals"):
        noted.read(PIDS).confirmed([[], []])


def test_a_call_that_was_told_and_not_made_is_found(noted):
    with pytest.raises(Contradiction, match=r"rank 0's record tells of send, which it has not called"):
        noted.read(PIDS).confirmed([[SEND], []])


@pytest.mark.parametrize(
    "changes",
    [
        {"op": "broadcast"},
        {"nbytes": 8},
        {"shape": (4,)},
        {"dtype": "int32"},
        {"ranks": (0, 1, 2)},
        {"reduce_op": "MAX"},
        {"root": 0},
        {"peer": 1},
        {"tag": 3},
        {"exchange": ((6, 6), (6, 6))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_call_that_is_told_otherwise_is_found(changes, noted):
    begins(noted, 11, 0, ALL_REDUCE)
    with pytest.raises(Contradiction):
        noted.read(PIDS).confirmed([[dataclasses.replace(ALL_REDUCE, **changes)], []])


def test_other_worlds_do_not_matter(noted):
    begins(noted, 99, 0, ALL_REDUCE)
    assert noted.read(PIDS).confirmed([[], []]) == [[], []]


def test_a_new_page_knows_nothing_of_the_one_before(noted):
    begins(noted, 12, 0, RECV)
    noted.forget(())
    noted.ends(12, 0, peer=0, when=5.0)
    assert noted.read(PIDS).confirmed([[], []]) == [[], []]


def test_calls_that_are_made_when_a_page_has_been_read_are_not_forgotten(noted):
    begins(noted, 11, 0, ALL_REDUCE)
    noted.read(PIDS)
    begins(noted, 99, 1, SEND)  # of another world
    assert noted.forget(PIDS) == []
    noted.read(PIDS)
    begins(noted, 12, 2, ALL_REDUCE)
    assert noted.forget(PIDS) == ["all_reduce"]


def test_a_ledger_does_not_grow_without_end(noted, monkeypatch):
    monkeypatch.setattr(ledger, "MOST_BYTES", 1000)
    with pytest.raises(MemoryError):
        for number in range(100):
            begins(noted, 11, number, SEND)
