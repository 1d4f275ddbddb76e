"""A record of calls that came out of a sandbox is read only if every field is what it can be."""

import dataclasses
import json

import pytest

from autograder.inside import call_json
from fourranks.trace import Call

SEND = Call(
    "send", "0", (0, 1, 2), shape=(3,), dtype="float32", nbytes=12, part=(3, "float32"), peer=1, end=1.0
)


def test_an_honest_record_comes_through_as_it_was():
    exchange = dataclasses.replace(SEND, op="all_to_all", peer=None, exchange=((1, 2, 3), (4, 5, 6)))
    sent = call_json.dumps([[SEND, exchange], [], []])
    one, other, _ = call_json.loads(sent, 3)
    assert [dataclasses.asdict(call) for call in one] == [
        dataclasses.asdict(SEND),
        dataclasses.asdict(exchange),
    ]
    assert other == []


def test_calls_of_a_batch_come_through_each_by_itself():
    receive = dataclasses.replace(SEND, op="recv", batch=(SEND,))
    (send, other), _, _ = call_json.loads(call_json.dumps([[SEND, receive], [], []]), 3)
    assert (send.op, other.op, other.batch) == ("send", "recv", ())


@pytest.mark.parametrize(
    "changes",
    [
        {"nbytes": -12},
        {"nbytes": True},
        {"nbytes": 1.5},
        {"peer": 3},
        {"peer": -1},
        {"peer": "1"},
        {"root": 7},
        {"ranks": ()},
        {"ranks": (0, 0, 1)},
        {"ranks": (0, 9)},
        {"ranks": 3},
        {"shape": [[3]]},
        {"shape": (2**63,)},
        {"shape": (1,) * 65},
        {"tag": 2**63},
        {"shape": {3: 3}},
        {"op": None},
        {"op": "x" * 10_000},
        {"file": b"file"},
        {"end": "late"},
        {"start": None},
        {"start": float("nan")},
        {"end": float("inf")},
        {"waited": float("-inf")},
        {"completed": float("nan")},
        {"exchange": ((1, 2, 3), (4, 5))},
        {"exchange": ((1, 2, 3), (4, 5, -6))},
        {"exchange": 3},
        {"part": (3,)},
        {"members": (0, 99)},
        {"look": (1.0,)},
        {"callers": (("file", "3", "function"),)},
        {"callers": (("file", 3),)},
        {"asynchronous": 1},
        {"error": 7},
        {"broke_group": None},
    ],
    ids=str,
)
def test_a_field_that_cannot_be_spoils_the_record(changes):
    with pytest.raises(ValueError, match="no record of calls"):
        call_json.loads(call_json.dumps([[dataclasses.replace(SEND, **changes)], [], []]), 3)


@pytest.mark.parametrize(
    "record",
    [None, [], [[], []], {"0": []}, [[], [], None], [[], [], [7]], [[], [], [["send", "0", [0, 1, 2]]]]],
    ids=str,
)
def test_a_record_has_calls_of_every_rank(record):
    with pytest.raises(ValueError, match="no record of"):
        call_json.loads(json.dumps(record), 3)


@pytest.mark.parametrize(
    "text",
    [None, b"[[]]", [[]], "", "[[]", "[" * 1_000_000, "[[]]" + " " * call_json.MOST_TEXT, "9" * 10_000],
    ids=lambda text: str(text)[:10],
)
def test_what_is_no_record_at_all_is_refused(text):
    with pytest.raises(ValueError):
        call_json.loads(text, 1)
