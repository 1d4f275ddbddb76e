"""A rank has received what its calls bring, and its results cannot need more than that."""

import pytest
import torch

from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import NOT_RECEIVED
from autograder.kit.received import received, too_little
from autograder.kit.verdict import CheckFailed
from fourranks.trace import Call

RANKS = (0, 1)


def call(op: str, nbytes: int = 12, **fields: object) -> Call:
    return Call(op, "0", RANKS, nbytes=nbytes, **fields)


@pytest.mark.parametrize(
    ("op", "fields", "got"),
    [
        ("all_reduce", {}, [12, 12]),
        ("broadcast", {"root": 0}, [0, 12]),
        ("reduce", {"root": 0}, [12, 0]),
        ("all_gather", {}, [12, 12]),
        ("all_gather_single", {}, [12, 12]),
        ("gather", {"root": 1}, [0, 12]),
        ("reduce_scatter", {}, [6, 6]),
        ("reduce_scatter", {"shape": (6,), "part": (12, "int8")}, [6, 6]),
        ("reduce_scatter", {"shape": (0,), "part": (12, "int8")}, [12, 12]),
        ("all_to_all", {"exchange": ((4, 8), (4, 2))}, [2, 4]),
        ("barrier", {}, [0, 0]),
    ],
)
def test_a_collective_brings_each_rank_its_result(op, fields, got):
    assert received([[call(op, **fields)], [call(op, **fields)]]) == got


def test_what_a_scatter_brings_stands_in_the_call_of_its_root():
    assert received([[call("scatter", root=0)], [call("scatter", 0, root=0)]]) == [0, 6]


def test_alone_a_rank_receives_nothing():
    assert received([[Call("all_reduce", "0", (0,), nbytes=12)]]) == [0]


def test_a_message_has_come_when_both_ends_tell_of_it_and_it_was_waited_for():
    sent, came = call("send", peer=1), call("recv", peer=0, end=1.0)
    assert received([[sent], [came]]) == [0, 12]
    assert received([[sent], []]) == [0, 0]
    assert received([[], [came]]) == [0, 0]
    assert received([[sent], [call("recv", peer=0)]]) == [0, 0]
    assert received([[call("send", 4, peer=1)], [came]]) == [0, 4]


def test_an_exchange_brings_no_more_than_the_other_rank_gives():
    gives_nothing = call("all_to_all_single", exchange=((0, 0), (0, 8)))
    has_room_for_much = call("all_to_all_single", exchange=((8, 0), (1000, 0)))
    assert received([[gives_nothing], [has_room_for_much]]) == [8, 0]


def test_less_than_a_result_needs_is_a_problem():
    calls = [[call("all_reduce")], [call("all_reduce")]]
    assert too_little((12, 12), calls) is None
    assert too_little((), calls) is None
    problem = too_little((12, 13), calls)
    assert problem.expected.startswith("rank 1: at least 13 bytes") and problem.got == "12 bytes"


def test_a_right_result_for_which_a_rank_has_received_nothing_fails_its_case():
    """Every value is as it should be: the data that it must have been made of is missing."""
    inputs = [(torch.ones(3),), (torch.ones(3),)]
    case = Trial(inputs=inputs, title="a copy", verify=lambda outcomes: None, received=(0, 12))
    with pytest.raises(CheckFailed) as caught:
        judge("copy", lambda tensor: tensor, [case], seed=0)
    assert caught.value.verdict.mistake is NOT_RECEIVED
