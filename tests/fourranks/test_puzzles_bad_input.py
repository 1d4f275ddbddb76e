"""A board answers any input with one sentence, and never hangs."""

from __future__ import annotations

import itertools
import json
import sys

import pytest
import torch

from fourranks.puzzles import board
from fourranks.puzzles.catalogue import UnknownBoard


@pytest.fixture(autouse=True)
def _records_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def endless():
    while True:
        pass


def endless_in_one_line():
    exec("while True: pass")


def endless_generator():
    while True:
        yield "F0"


def spinning_generator():
    yield "F0"
    endless()


def recursive(rank):
    return recursive(rank)


def stubborn(rank):
    while True:
        try:
            rank += 1
        except Exception:
            rank = 0


def many_lines(rank):
    raise ValueError("one line\nand another")


class Broken:
    """Cannot even be shown."""

    def __repr__(self):
        raise ValueError("no text")


class Mistaken:
    """Says that it is a number, and is none."""

    def __index__(self):
        return 1 // 0


SCHEDULES = {
    "nothing": (None, "The schedule has to be a list, not None."),
    "a number": (7, "The schedule has to be a list, not 7."),
    "one text": ("F0 B0", "Give a list of 2 orders, one for each rank, not one string for all."),
    "too few ranks": (["F0"], "There are 2 ranks, so the schedule needs 2 orders, not 1."),
    "too many ranks": (["F0"] * 3, "There are 2 ranks, so the schedule needs 2 orders, not more."),
    "endless ranks": (itertools.repeat("F0"), "There are 2 ranks, so the schedule needs 2 orders, not more."),
    "an endless order": (lambda rank: endless_generator(), "Rank 0 has 8 tasks to do, and its order goes on"),
    "an order that never comes": (lambda rank: endless(), "Your code has not ended after 1,000,000 steps."),
    "a loop in one line": (
        lambda rank: endless_in_one_line(),
        "Your code has not ended after 1,000,000",
    ),
    "a comprehension without end": (
        lambda rank: [f"F{rank}" for _ in iter(int, 1)],
        "Your code has not ended after 1,000,000",
    ),
    "an order that stops coming": (
        lambda rank: spinning_generator(),
        "Your code has not ended after 1,000,000",
    ),
    "an endless loop that catches errors": (stubborn, "Your code has not ended after 1,000,000 steps."),
    "an error in two lines": (many_lines, "Your code raised ValueError: one line and another (line"),
    "recursion": (recursive, "Your function calls itself without end."),
    "an error": (lambda rank: 1 / 0, "Your code raised ZeroDivisionError: division by zero (line"),
    "another signature": (lambda: "F0", "but 1 was given."),
    "a function not called": (
        [endless_generator, "F0"],
        "Rank 0's order is a function that has not been called",
    ),
    "an order that is none": ([3, "F0"], "Rank 0's order has to be a list, not 3."),
    "no task": (["F0 X1", ""], 'Rank 0, place 1: \'X1\' is no task. Write "F0" or ("F", 0)'),
    "a negative microbatch": (
        [[("F", -1)], []],
        "Rank 0, place 0: there is no microbatch -1; they are 0 to 3.",
    ),
    "a microbatch too many": (["F4", ""], "Rank 0, place 0: there is no microbatch 4; they are 0 to 3."),
    "a microbatch that is no number": ([[("F", "0")], []], "Rank 0, place 0: ('F', '0') is no task."),
    "several numbers": (
        [[("F", torch.tensor([1, 2]))], []],
        "Rank 0, place 0: ('F', tensor([1, 2])) is no task.",
    ),
    "a bool": ([[("F", True)], []], "Rank 0, place 0: ('F', True) is no task."),
    "not a number": ([[("F", float("nan"))], []], "Rank 0, place 0: ('F', nan) is no task."),
    "a chunk": (["F0.1", ""], "Rank 0, place 0: there is no chunk 1; a rank has 1."),
    "a kind of another board": (["W0", ""], "there is no 'W' on this board; its tasks are F (forward) and B"),
    "a number with a mistake": ([[("F", Mistaken())], []], "Your code raised ZeroDivisionError"),
    "what cannot be shown": ([[Broken()], []], "Rank 0, place 0: <Broken instance at 0x"),
    "a huge number": ([[("F", 10**100)], []], "there is no microbatch 1000"),
    "a task twice": (["F0 F0", ""], "Rank 0 does F0 twice."),
    "a task missing": (["F0 B0", "F0 B0"], "Rank 0 never does F1."),
    "a deadlock": (
        ["B0 F0", "F0 B0"],
        "The ranks deadlock: rank 0's B0 needs F0 of rank 0, rank 1's F0 needs F0",
    ),
}


def negative_forever():
    while True:
        yield [(-1, 0)]


PLANS = {
    "nothing": (None, "The plan has to be a list, not None."),
    "a text": ("0>1", "Give a list of rounds, not a string."),
    "a function that raises": (lambda: [][0], "Your code raised IndexError"),
    "endless rounds": (negative_forever, "The plan has more than 24 rounds, and this board allows 24."),
    "an endless round": ([itertools.repeat((0, 1))], "Round 1 has more than 4 messages"),
    "a round that is none": ([5], "Round 1 has to be a list, not 5."),
    "a message in place of a round": ([(0, 1, "A")], "Round 1, message 1 has to be a list, not 0."),
    "a message that is none": ([["0 to 1"]], "Round 1, message 1: '0 to 1' is no message."),
    "a message of one field": ([[(0,)]], "Round 1, message 1: (0,) is no message."),
    "a negative rank": ([[(-1, 0, "A")]], "Round 1, message 1: there is no rank -1; ranks are 0 to 3."),
    "a rank that is a text": (
        [[("0", 1, "A")]],
        "Round 1, message 1: there is no rank '0'; ranks are 0 to 3.",
    ),
    "no parts": ([[(0, 1)]], "Round 1, message 1 names no part; they are A, B, C and D."),
    "an unknown part": (
        [[(0, 1, "AZ")]],
        "Round 1, message 1: there is no part 'Z'; they are A, B, C and D.",
    ),
    "endless parts": ([[(0, 1, itertools.repeat("Z"))]], "Round 1, message 1: there is no part 'Z'"),
    "parts that are none": ([[(0, 1, 5)]], "What round 1, message 1 sends has to be a list, not 5."),
    "unhashable parts": ([[(0, 1, [["A"]])]], "Round 1, message 1: there is no part ['A']"),
    "to itself": ([[(0, 0, "A")]], "Round 1: rank 0 sends to itself."),
    "two sends": ([[(0, 1, "A"), (0, 2, "A")]], "Round 1: rank 0 sends twice."),
    "two receives": ([[(0, 1, "A"), (2, 1, "A")]], "Round 1: rank 1 receives twice."),
    "too many parts in all": (
        [[(0, 1, "ABCD")], [(0, 2, "ABC")]],
        "rank 0 has now sent 7 parts; a rank may send 6.",
    ),
    "nothing done": ([], "At the start rank 0 still lacks part A of ranks 1, 2 and 3. 3 more ranks lack"),
}


@pytest.mark.parametrize(
    ("name", "moves", "said"),
    [
        pytest.param(name, moves, said, id=f"{name}-{what}")
        for name, tried in {"Two and four": SCHEDULES, "Short cut": PLANS}.items()
        for what, (moves, said) in tried.items()
    ],
)
def test_moves_that_cannot_be_played_get_one_sentence(name, moves, said):
    attempt = board(name).play(moves)
    assert attempt.score is None
    assert said in attempt.verdict and "\n" not in attempt.verdict
    assert attempt._repr_mimebundle_()["text/html"]


def test_the_line_that_is_named_is_the_players_own():
    def order(rank):
        return json.loads("no JSON")

    line = order.__code__.co_firstlineno + 1
    assert board("Two and four").play(order).verdict.endswith(f" (line {line} of it).")


def test_limits_of_single_boards_are_kept():
    assert "has 2 parts; it can carry one part" in board("In four pieces").play([[(0, 1, "AB")]]).verdict
    assert "more to the other node than a rank may" in board("Two nodes").play([[(0, 4, "AB")]]).verdict
    assert "more than 2 rounds" in board("By way of a friend").play([[]] * 3).verdict


def test_a_debugger_that_was_set_is_set_again():
    before = sys.gettrace()
    board("Two and four").play(lambda rank: endless())
    assert sys.gettrace() is before


def test_the_stop_button_stops_a_players_code():
    def interrupted(rank):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        board("Two and four").play(interrupted)


@pytest.mark.parametrize("name", ["three dead", "", None, 3])
def test_a_name_of_no_board_lists_the_boards(name):
    with pytest.raises(UnknownBoard, match="There is no board .* Boards are: Two and four, Four of eight"):
        board(name)


def test_a_boards_name_may_be_written_in_any_case():
    assert board(" four OF eight") is board("Four of eight")
