"""Every board's par is reached by a solution, and no schedule or plan goes below it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

import fourranks
from fourranks.puzzles import BOARDS, board, scores
from fourranks.puzzles.board import CollectivePuzzle, PipelinePuzzle
from fourranks.puzzles.collective import Exchange, Send, play

from .pipeline_search import can_end_within

PACKAGE = Path(fourranks.__file__).parent


def one_f_one_b(ranks: int, microbatches: int):
    def order(rank: int) -> list[tuple[str, int]]:
        warm = min(ranks - 1 - rank, microbatches)
        steady = [(kind, k + warm * (kind == "F")) for k in range(microbatches - warm) for kind in "FB"]
        cool = [("B", k) for k in range(microbatches - warm, microbatches)]
        return [("F", k) for k in range(warm)] + steady + cool

    return order


def shifted(ranks: int, by: int, parts) -> list[tuple[int, int, str]]:
    """A round in which every rank sends some parts to the one `by` further on."""
    return [(rank, (rank + by) % ranks, parts(rank)) for rank in range(ranks)]


def ring(ranks: int, parts: str) -> list[list[tuple[int, int, str]]]:
    rounds = range(2 * (ranks - 1))
    return [shifted(ranks, 1, lambda rank, turn=turn: parts[(rank - turn) % ranks]) for turn in rounds]


HALVES = [
    ("AB", "CD")[rank & 1] for rank in range(4)
]  # that a rank keeps after the first round of the short cut

SOLUTIONS = {
    "Two and four": one_f_one_b(2, 4),
    "Four of eight": one_f_one_b(4, 8),
    "Three alive": [
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6 B7 B8",
        "F0 F1 F2 B0 B1 F3 B2 F4 F5 B3 B4 F6 B5 F7 F8 B6 B7 B8",
        "F0 F1 F2 B0 B1 B2 F3 F4 B3 F5 B4 B5 F6 F7 B6 F8 B7 B8",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8",
    ],
    "Long wires": [
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5",
        "F0 F1 F2 F3 B0 B1 F4 B2 F5 B3 B4 B5",
        "F0 F1 F2 F3 B0 B1 B2 B3 F4 F5 B4 B5",
        "F0 B0 F1 B1 F2 F3 B2 B3 F4 B4 F5 B5",
    ],
    "The slow rank": [
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 F2 B0 B1 F3 B2 F4 B3 F5 B4 F6 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 B2 F3 B3 F4 B4 F5 B5 F6 F7 B6 B7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    ],
    "Split backward": [
        "F0 F1 F2 B0 W0 F3 B1 W1 F4 B2 W2 F5 B3 W3 F6 B4 W4 F7 B5 W5 B6 W6 B7 W7",
        "F0 F1 F2 B0 W0 B1 F3 B2 W1 F4 W2 B3 F5 B4 W3 F6 W4 F7 B5 W5 B6 W6 B7 W7",
        "F0 F1 F2 B0 W0 B1 B2 W1 F3 W2 F4 B3 W3 B4 F5 W4 F6 B5 W5 F7 B6 W6 B7 W7",
        "F0 B0 F1 F2 B1 B2 W0 W1 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5 F6 B6 W6 F7 B7 W7",
    ],
    "Two visits": [
        "F0.0 F1.0 F0.1 F1.1 B0.1 F2.0 B1.1 F3.0 B0.0 F2.1 B1.0 F3.1 "
        "B2.1 F4.0 B3.1 F5.0 B2.0 F4.1 B3.0 F5.1 B4.1 B5.1 B4.0 B5.0",
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 "
        "F3.1 B3.1 F4.0 B2.0 F5.0 B3.0 F4.1 B4.1 F5.1 B5.1 B4.0 B5.0",
    ],
    "There and back": [
        "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F3.0 B0.0 W0.0 F1.1 B1.1 W1.1 "
        "B1.0 W1.0 F2.1 B2.1 F3.1 B3.1 B2.0 W2.0 B3.0 W3.0 W2.1 W3.1",
        "F0.0 F0.1 F1.0 F2.0 B0.1 B0.0 W0.0 F1.1 W0.1 F3.0 B1.1 B1.0 "
        "W1.0 F2.1 W1.1 F3.1 B2.1 B2.0 B3.1 B3.0 W2.0 W3.0 W2.1 W3.1",
    ],
    "Telephone tree": [[(src, src + far) for src in range(far)] for far in (1, 2, 4)],
    "In four pieces": [
        [(0, 3, "A")],
        [(0, 1, "B"), (3, 2, "A")],
        [(2, 1, "A"), (0, 2, "C"), (1, 3, "B")],
        [(0, 1, "D"), (1, 2, "B"), (2, 3, "C")],
        [(2, 1, "C"), (0, 2, "D"), (1, 3, "D")],
    ],
    "Six at a table": [
        shifted(6, -far, lambda rank, many=many: ["ABCDEF"[(rank + n) % 6] for n in range(many)])
        for far, many in ((1, 1), (2, 2), (4, 2))
    ],
    "Five friends": [[(4, 0)], [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (2, 0), (1, 3), (3, 1)], [(0, 4)]],
    "Short cut": [
        [(rank, rank ^ 1, HALVES[rank ^ 1]) for rank in range(4)],
        [(rank, rank ^ 2, HALVES[rank]) for rank in range(4)],
        [(rank, rank ^ 1, HALVES[rank]) for rank in range(4)],
    ],
    "One part at a time": ring(4, "ABCD"),
    "By way of a friend": [
        shifted(4, 1, lambda rank: [f"{rank}{(rank + far) % 4}" for far in (1, 3)]),
        shifted(4, 2, lambda rank: [f"{rank}{(rank + 2) % 4}", f"{(rank - 1) % 4}{(rank + 2) % 4}"]),
    ],
    "Two nodes": [
        [(rank, rank ^ 2, "AB" if rank & 2 else "CD") for rank in range(8)],
        [(rank, rank ^ 1, "ABCD"[rank % 4 ^ 1]) for rank in range(8)],
        [(rank, rank ^ 4, "ABCD"[rank % 4]) for rank in range(8)],
        [(rank, rank ^ 1, "ABCD"[rank % 4]) for rank in range(8)],
        [(rank, rank ^ 2, "CD" if rank & 2 else "AB") for rank in range(8)],
    ],
}
PIPELINES = [name for name, each in BOARDS.items() if isinstance(each, PipelinePuzzle)]


@pytest.fixture(autouse=True)
def _records_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_there_are_at_least_twelve_boards_of_both_kinds():
    assert len(BOARDS) >= 12 and 4 < len(PIPELINES) < len(BOARDS) - 4


@pytest.mark.parametrize("name", BOARDS)
def test_a_solution_reaches_par_and_is_told_why_nobody_can_beat_it(name):
    attempt = board(name).play(SOLUTIONS[name])
    assert attempt.score == board(name).par, attempt.verdict
    assert attempt.verdict.endswith(board(name).proof)


def test_the_search_finds_a_schedule_where_there_is_one():
    assert all(
        can_end_within(board(name).par, board(name).shape) for name in ("Two and four", "Four of eight")
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_no_schedule_is_below_par(name):
    assert not can_end_within(board(name).par - 1, board(name).shape)


def test_no_plan_adds_up_five_ranks_in_three_rounds():
    shape, par = board("Five friends").shape, board("Five friends").par
    assert not can_add_up(shape, par - 1)


def test_four_parts_one_at_a_time_do_not_reach_four_ranks_in_four_rounds():
    everything = (15, 0, 0, 0)
    assert can_spread(everything, board("In four pieces").par)
    assert not can_spread(everything, board("In four pieces").par - 1)


def test_the_other_plans_meet_their_bounds():
    bounds = {
        "Telephone tree": (8 - 1).bit_length(),  # twice as many know in each round
        "Six at a table": (6 - 1).bit_length(),  # a rank's holdings at most double
        "Short cut": 2 + 1,  # in two rounds sums double twice, and someone sends 2 * 4 parts
        "One part at a time": 2 * (4 - 1) * 4 // 4,  # sends of 4 parts, by 4 ranks a round
        "By way of a friend": (2 * 1 + 1 * 2)
        * 4
        // 4,  # for each rank two parts come directly, one by two sends
        "Two nodes": 2 + 1 + 2,  # a node's sum, across, to all of the other node
    }
    assert bounds == {name: board(name).par for name in bounds}


def can_add_up(shape: Exchange, rounds: int) -> bool:
    """Try all plans for an all-reduce of one part, up to the numbering of the ranks."""
    states = {tuple(row["A"] for row in shape.start)}
    for _ in range(rounds - 1):
        states = {canonical(after) for state in states for after in followers(state, range(shape.ranks))}
    return any(reaches(state, tuple(row["A"] for row in shape.goal)) for state in states)


def merged(arriving: frozenset, there: frozenset) -> frozenset | None:
    """The holdings of a rank after a message; None if it could not be sent, or would count someone twice."""
    if not arriving or (arriving & there and not arriving >= there):
        return None
    return arriving | there


def followers(state, ranks):
    """All states after one more round, in which everyone hears from one other rank or nobody."""

    def choose(dst: int, free: frozenset, so_far: tuple):
        if dst == len(ranks):
            yield so_far
            return
        yield from choose(dst + 1, free, (*so_far, state[dst]))
        for src in free - {dst}:
            if (got := merged(state[src], state[dst])) is not None and got != state[dst]:
                yield from choose(dst + 1, free - {src}, (*so_far, got))

    yield from choose(0, frozenset(ranks), ())


def reaches(state, goal) -> bool:
    """Whether one round is enough: each rank that is not there yet needs a sender of its own."""

    def serve(dst: int, free: frozenset) -> bool:
        if dst == len(state):
            return True
        if state[dst] == goal[dst] and serve(dst + 1, free):
            return True
        senders = [src for src in free - {dst} if merged(state[src], state[dst]) == goal[dst]]
        return any(serve(dst + 1, free - {src}) for src in senders)

    return serve(0, frozenset(range(len(state))))


def canonical(state):
    """Number the ranks by how much they hold; states that differ in their numbering alone often coincide."""
    order = sorted(
        range(len(state)), key=lambda rank: (len(state[rank]), sum(rank in held for held in state))
    )
    new = {rank: place for place, rank in enumerate(order)}
    return tuple(frozenset(new[rank] for rank in state[old]) for old in order)


def can_spread(held: tuple[int, ...], rounds: int) -> bool:
    """Whether all ranks can have all four parts, a bit each, by so many rounds of one part a message."""
    states = {held}
    for left in range(rounds, 0, -1):
        states = {after for state in states for after in spread(state) if fewest(after) < left}
        if any(fewest(state) == 0 for state in states):
            return True
    return False


def fewest(state: tuple[int, ...]) -> int:
    """The parts that the poorest rank lacks: it takes as many rounds."""
    return max(4 - held.bit_count() for held in state)


def spread(state: tuple[int, ...]):
    """All states after a round, up to the numbering of ranks but the first."""
    choices = [
        [
            None,
            *((src, part) for src in range(4) for part in range(4) if (state[src] & ~state[dst]) >> part & 1),
        ]
        for dst in range(4)
    ]
    for chosen in product(*choices):
        senders = [choice[0] for choice in chosen if choice]
        if len(set(senders)) == len(senders):
            first, *others = (
                held | (1 << choice[1] if choice else 0) for held, choice in zip(state, chosen, strict=True)
            )
            yield (first, *sorted(others))


def test_a_message_adds_replaces_or_is_refused_by_the_one_rule():
    ones, pair = {"A": frozenset({0})}, {"A": frozenset({0, 1})}
    other = {"A": frozenset({1})}
    shape = Exchange((ones, other, pair), ({}, {}, {}))
    added = play([[Send(0, 1, ("A",))]], shape)
    assert added.held[-1][1]["A"] == {0, 1}
    replaced = play([[Send(2, 1, ("A",))]], shape)
    assert replaced.held[-1][1]["A"] == {0, 1}
    refused = play([[Send(0, 2, ("A",))]], shape)
    assert "rank 0 would count twice" in refused.slip.message


def test_messages_of_one_round_carry_what_was_there_before_it():
    chain = board("Telephone tree").judge([[(0, 1), (1, 2)]])
    assert chain.fault == "Round 1: rank 1 sends part A to rank 2, but it holds nothing of it yet."


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_and_an_attempt_show_a_picture_with_words(name):
    for shown in (board(name), board(name).play(SOLUTIONS[name]), board(name).play([])):
        data = shown._repr_mimebundle_()
        assert 'src="data:image/svg+xml;base64,' in data["text/html"] and 'alt="' in data["text/html"]
        assert name in data["text/plain"]


def test_a_wrong_attempt_is_drawn_up_to_its_fault():
    attempt = board("Four of eight").play(lambda rank: [("F", k) for k in range(8)])
    assert "Rank 0 starts F4 while it still keeps the activations of F0, F1, F2 and F3" in attempt.verdict
    drawn = attempt.judged.drawing.svg()
    assert "✕" in drawn and ">F4<" in drawn
    attempt = board("Short cut").play(SOLUTIONS["Short cut"][:2])
    assert "After round 2 rank 0 still lacks part C of ranks 1, 2 and 3. 3 more ranks lack" in attempt.verdict
    assert attempt.judged.drawing.svg().count("✕") == 4


def test_the_shared_line_tells_scores_and_no_moves():
    board("Two and four").play([])
    board("Two and four").play(lambda rank: " ".join(f"F{k} B{k}" for k in range(4)))
    attempt = board("Two and four").play(SOLUTIONS["Two and four"])
    assert attempt.share == "Four Ranks · Two and four · 15/15 ticks ⬛🟨🟩"
    assert scores().share.startswith("Four Ranks puzzles · 1 of 16 at par 🟩⬜⬜")


def test_boards_need_nothing_but_pythons_standard_library(tmp_path):
    """As in a page: the folder, two modules of the views, and an interpreter without site packages."""
    shutil.copytree(PACKAGE / "puzzles", tmp_path / "fourranks" / "puzzles")
    (tmp_path / "fourranks" / "views").mkdir()
    for module in ("palette.py", "picture.py"):
        shutil.copy(PACKAGE / "views" / module, tmp_path / "fourranks" / "views")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from fourranks.puzzles import board
print(board("Telephone tree").play({SOLUTIONS["Telephone tree"]!r})._repr_mimebundle_()["text/plain"])
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("3 rounds: that is par"), ran.stderr


def test_every_collective_board_says_its_limits_in_its_task():
    for each in BOARDS.values():
        if isinstance(each, CollectivePuzzle) and each.shape.most_parts:
            assert str(each.shape.most_parts) in each.task
