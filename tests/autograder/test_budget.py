"""Budgets and forbidden calls, on records written by hand: their counts, and the message of a broken rule."""

import pytest

from autograder.topics.collectives.budget import Budget, mismatched, rounds, unwaited, violation
from autograder.topics.collectives.mistakes import BYTES, FORBIDDEN, MESSAGES, NEIGHBOURS, ROUNDS, UNWAITED
from fourranks.trace import Call


class Record:
    """The calls of `world_size` ranks, issued one after the other on one clock."""

    def __init__(self, world_size: int) -> None:
        self.calls: list[list[Call]] = [[] for _ in range(world_size)]
        self._now = 0.0
        self._sent: dict[tuple[int, int], int] = {}

    def message(self, src: int, dst: int, nbytes: int = 8, waited: bool = True) -> None:
        seq = self._sent[src, dst] = self._sent.get((src, dst), -1) + 1
        self.call(src, "send", peer=dst, seq=seq, nbytes=nbytes, waited=waited)
        self.call(dst, "recv", peer=src, seq=seq, nbytes=nbytes)

    def call(
        self, rank: int, op: str, waited: bool = True, nbytes: int = 8, seq: int = 0, **fields: object
    ) -> None:
        self._now += 1.0
        end = self._now + 0.5 if waited else None
        ranks = tuple(range(len(self.calls)))
        fixed = {"group": "0", "ranks": ranks, "index": 0, "shape": (), "dtype": "float32", "part": None}
        self.calls[rank].append(
            Call(op=op, seq=seq, nbytes=nbytes, start=self._now, end=end, line=7, **fixed, **fields)
        )


def record(world_size: int, *messages: tuple[int, int]) -> list[list[Call]]:
    record = Record(world_size)
    for src, dst in messages:
        record.message(src, dst)
    return record.calls


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (0, 2), (0, 3)], 3),  # one after another
        ([(0, 1), (1, 2), (2, 3)], 3),  # a chain
        ([(0, 1), (0, 2), (1, 3)], 2),  # a tree: 0 and 1 send in the same round
        ([(1, 0), (3, 2), (2, 0)], 2),  # a tree upside down
        ([(1, 0), (2, 0), (3, 0)], 3),  # all to one: it receives one message a round
        ([(0, 1), (2, 3)], 1),  # independent of each other
    ],
    ids=["nothing", "one", "star", "chain", "tree", "reduce tree", "all to one", "pairs"],
)
def test_rounds_follow_from_who_needs_what_and_not_from_the_clock(messages, expected):
    assert rounds(record(4, *messages)) == expected


def test_a_ring_step_of_isend_and_irecv_is_one_round():
    step = Record(3)
    for rank in range(3):
        step.call(rank, "recv", peer=(rank - 1) % 3, waited=False)
    for rank in range(3):
        step.call(rank, "send", peer=(rank + 1) % 3)
    assert rounds(step.calls) == 1


def test_a_message_that_was_received_from_any_source_does_not_stop_the_count():
    calls = record(3, (0, 1), (1, 2))
    calls[1][0].peer = None
    assert rounds(calls) == 1


def test_what_keeps_the_budget_is_no_violation():
    budget = Budget("a ring", (8, 8, 8), (1, 1, 1), 24, 3, (0, 1, 2))
    assert violation(budget, record(3, (0, 1), (1, 2), (2, 0))) is None


@pytest.mark.parametrize(
    ("budget", "mistake", "expected", "got"),
    [
        (
            Budget("a ring", bytes_by_rank=(8, 8, 8)),
            BYTES,
            "a ring: at most 8 bytes from rank 0 (24 in all)",
            "16 bytes from rank 0 (24 in all)",
        ),
        (Budget("a tree", total_bytes=16), BYTES, "a tree: at most 16 bytes in all", "24 bytes in all"),
        (
            Budget("a ring", messages_by_rank=(1, 1, 1)),
            MESSAGES,
            "a ring: at most 1 message from rank 0 (3 in all)",
            "2 messages from rank 0 (3 in all)",
        ),
        (Budget("a tree", rounds=1), ROUNDS, "a tree: at most 1 round", "3 rounds"),
    ],
    ids=["bytes of a rank", "bytes in all", "messages", "rounds"],
)
def test_a_broken_budget_says_what_was_allowed_and_what_was_found(budget, mistake, expected, got):
    found = violation(budget, record(3, (0, 1), (0, 2), (1, 2)))
    assert (found.mistake, found.expected, found.got) == (mistake, expected, got)


def test_in_a_ring_only_neighbours_get_messages():
    budget = Budget("a ring", ring=(0, 1, 2, 3))
    assert violation(budget, record(4, (3, 0), (0, 3))) is None
    found = violation(budget, record(4, (0, 1), (0, 2)))
    assert (found.expected, found.got) == ("rank 0 sends to ranks 1,3 only", "a message to rank 2 in line 7")


def test_the_ring_of_a_smaller_group_is_in_the_order_of_the_group():
    budget = Budget("a ring", ring=(1, 4, 5, 7))
    assert violation(budget, record(8, (4, 5), (7, 1))) is None
    assert violation(budget, record(8, (1, 5))).mistake is NEIGHBOURS


def test_a_collective_is_named_with_its_line_and_comes_before_every_budget():
    mixed = Record(2)
    mixed.message(0, 1, nbytes=100)
    mixed.call(1, "all_gather")
    found = violation(Budget("nothing", bytes_by_rank=(0, 0)), mixed.calls)
    assert (found.mistake, found.got) == (FORBIDDEN, "dist.all_gather in line 7")


def test_a_buffer_of_another_size_or_dtype_than_its_message_is_found():
    calls = record(3, (0, 1), (1, 2))
    assert mismatched(calls) is None
    calls[2][0].nbytes = 4
    found = mismatched(calls)
    assert found.expected == "room for the 8 bytes of float32 that rank 1 sends in line 7"
    assert found.got == "4 bytes of float32 on rank 2 in line 7"


def test_a_message_without_wait_is_a_violation_even_within_the_budget():
    careless = Record(2)
    careless.message(0, 1, waited=False)
    assert violation(Budget("anything"), careless.calls).mistake is UNWAITED
    assert unwaited(careless.calls).got == "none for the isend in line 7 on rank 0"
    assert unwaited(record(2, (0, 1))) is None
