"""When the record of ranks and Linux's count contradict each other, and when a busy machine explains it."""

import pytest

from autograder.sandbox import bubblewrap, loopback
from autograder.sandbox.loopback import (
    EACH_CALL,
    EACH_PAIR,
    SEGMENT,
    LoopbackTraffic,
    contradiction,
    unknown_torch,
)
from autograder.sandbox.sandbox import SandboxMissing
from fourranks.trace import Call

SEND = Call("send", "0", (0, 1), nbytes=1_000_000, peer=1)
SLACK = 50_000 + 4 * EACH_PAIR + 2 * EACH_CALL


def counted(nbytes: int, resent: int = 0) -> str:
    return contradiction([[SEND], []], LoopbackTraffic(nbytes, resent))


def test_what_headers_and_meeting_take_is_no_contradiction():
    assert counted(1_000_000 - SLACK) == counted(1_000_000 + SLACK) == ""


def test_bytes_that_no_call_accounts_for_are_one():
    assert "account for 1,000,000 only" in counted(1_000_001 + SLACK)


def test_bytes_that_were_never_sent_are_one():
    assert "pretend 1,000,000" in counted(999_999 - SLACK)


def test_segments_that_were_sent_again_count_twice():
    assert counted(1_000_000 + SLACK + 3 * SEGMENT, resent=3) == ""
    assert counted(1_000_000 + SLACK + 3 * SEGMENT + 1, resent=3) != ""


def test_but_not_more_than_a_busy_machine_would_send_again():
    assert counted(2_000_000, resent=1000) != ""


@pytest.mark.parametrize(
    ("call", "sent"),
    [
        (Call("all_reduce", "0", (0, 1, 2), nbytes=3_000_000), 4_000_000),
        (Call("broadcast", "0", (0, 1, 2), nbytes=3_000_000), 2_000_000),
        (Call("all_to_all", "0", (0, 1, 2), exchange=((5 * 10**6, 10**6, 2 * 10**6), (0, 0, 0))), 3_000_000),
        (Call("recv", "0", (0, 1), nbytes=1_000_000), 0),
    ],
    ids=lambda value: getattr(value, "op", value),
)
def test_each_operation_sends_what_gloo_makes_of_it(call, sent):
    assert contradiction([[call], [], []], LoopbackTraffic(sent, 0)) == ""
    assert contradiction([[call], [], []], LoopbackTraffic(sent + 1_000_000, 0)) != ""


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.14.1", "2.15.0+cu132"])
def test_the_traffic_of_all_versions_that_the_course_supports_is_known(version):
    assert unknown_torch(version) == ""


def test_no_sandbox_is_made_for_a_torch_whose_traffic_is_not_known(monkeypatch):
    monkeypatch.setattr(loopback, "KNOWN_TORCH", ("2.11", "2.12"))
    with pytest.raises(SandboxMissing) as refused:
        bubblewrap.check()
    assert "knows the traffic of torch 2.11 and 2.12, not of 2." in str(refused.value)
    assert "pip install torch==2.12.*" in str(refused.value)
