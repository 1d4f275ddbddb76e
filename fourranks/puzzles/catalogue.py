"""The boards of the course, from easy to hard.

A test holds each par to a solution, and to a search or a bound.
"""

from __future__ import annotations

from .board import CollectivePuzzle, PipelinePuzzle, Puzzle
from .collective import NOTHING, Exchange, Held, Sum
from .pipeline import Pipeline

_TIMES = {"F": 1, "B": 2}
_SPLIT = {"F": 1, "B": 1, "W": 1}
_SEARCHED = "A search through all schedules finds none that is shorter."
_FOUR = ("A", "B", "C", "D")


def _all_reduce(ranks: int, parts: tuple[str, ...]) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Return start and goal of an all-reduce."""
    total = Sum(range(ranks))
    start = tuple({part: Sum({rank}) for part in parts} for rank in range(ranks))
    return start, tuple(dict.fromkeys(parts, total) for _ in range(ranks))


def _broadcast(ranks: int, parts: tuple[str, ...]) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    own: Held = dict.fromkeys(parts, Sum({0}))
    return (own, *[dict.fromkeys(parts, NOTHING)] * (ranks - 1)), (own,) * ranks


def _all_gather(ranks: int) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    parts = "ABCDEFGH"[:ranks]
    goal: Held = {part: Sum({rank}) for rank, part in enumerate(parts)}
    start = tuple({part: goal[part] if part == own else NOTHING for part in parts} for own in parts)
    return start, (goal,) * ranks


def _all_to_all(ranks: int) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Make an all-to-all, in which part "01" is what rank 0 has for rank 1."""
    owners = {f"{src}{dst}": src for src in range(ranks) for dst in range(ranks)}
    start = tuple(
        {part: Sum({src}) if src == rank else NOTHING for part, src in owners.items()}
        for rank in range(ranks)
    )
    return start, tuple({f"{src}{rank}": Sum({src}) for src in range(ranks)} for rank in range(ranks))


_PIPELINES = (
    PipelinePuzzle(
        "Two and four",
        "2 ranks, 4 microbatches; a forward (F) takes 1 tick, a backward (B) 2. A rank can keep 2 "
        "microbatches in memory: from the start of their F to the end of their B.",
        "ticks",
        15,
        "Rank 1 can begin at tick 1, has 12 ticks of work, and rank 0's last B follows it: 1 + 12 + 2.",
        Pipeline(4, (0, 1), _TIMES, (2, 2)),
    ),
    PipelinePuzzle(
        "Four of eight",
        "4 ranks, 8 microbatches, F takes 1 tick and B 2. Each rank has memory for 4 of the 8 microbatches.",
        "ticks",
        33,
        "Rank 3 begins at tick 3 at the earliest, works for 24 ticks, and three more B follow: 3 + 24 + 6. "
        "GPipe is as fast, but needs memory for 8.",
        Pipeline(8, (0, 1, 2, 3), _TIMES, (4, 4, 4, 4)),
    ),
    PipelinePuzzle(
        "Three alive",
        "The same 4 ranks with 9 microbatches, and memory for 3 of them only.",
        "ticks",
        42,
        "A microbatch needs 12 ticks from its F to its B on rank 0. So F3 cannot begin before tick 12, "
        "and F6 not before 24. Rank 3 gets it at 27, has 9 ticks of work left then, and three more B follow: "
        "27 + 9 + 6.",
        Pipeline(9, (0, 1, 2, 3), _TIMES, (3, 3, 3, 3)),
    ),
    PipelinePuzzle(
        "Long wires",
        "4 ranks, 6 microbatches, F takes 1 tick, B takes 2, and each message from rank to rank takes 1. "
        "Each rank has memory for 4 microbatches.",
        "ticks",
        39,
        "On rank 0 F4 has to wait for B0, which ends at tick 18 at the earliest. So rank 3 gets it at 24, "
        "has 6 ticks of work left then, and three more messages and B follow: 24 + 6 + 9.",
        Pipeline(6, (0, 1, 2, 3), _TIMES, (4, 4, 4, 4), wire=1),
    ),
    PipelinePuzzle(
        "The slow rank",
        "4 ranks, 8 microbatches. Rank 1 has twice as many layers: its F takes 2 ticks, its B takes 4. The "
        "others need 1 and 2. Each rank has memory for 3 microbatches.",
        "ticks",
        54,
        _SEARCHED + " With memory for 4, rank 1 would never pause, and 51 ticks would do.",
        Pipeline(8, (0, 1, 2, 3), _TIMES, (3, 3, 3, 3), slow={1: 2}),
    ),
    PipelinePuzzle(
        "Split backward",
        "4 ranks, 8 microbatches, and a backward in two halves: B makes the gradient that the rank before "
        "waits for, W the gradients of the weights, which nobody waits for. F, B and W take 1 tick each. A "
        "microbatch stays in memory until its W, and there is room for 3.",
        "ticks",
        31,
        _SEARCHED + " With memory for 4, 27 ticks would do: only the 3 ticks until rank 3 begins are lost.",
        Pipeline(8, (0, 1, 2, 3), _SPLIT, (3, 3, 3, 3)),
    ),
    PipelinePuzzle(
        "Two visits",
        "Interleaved: 2 ranks with 2 chunks each. A microbatch visits rank 0, rank 1, rank 0 and rank 1: "
        "F0.0, F0.0, F0.1, F0.1, and the same way back. 6 microbatches; F takes 1 tick, B 2; memory for 4 "
        "chunks' activations a rank.",
        "ticks",
        39,
        "Rank 1 begins at tick 1, has 36 ticks of work, and one B of rank 0 follows: 1 + 36 + 2. Without "
        "chunks, at twice the ticks a task, it would be 42.",
        Pipeline(6, (0, 1, 0, 1), _TIMES, (4, 4)),
    ),
    PipelinePuzzle(
        "There and back",
        "2 ranks with 2 chunks each, laid out like a V: a microbatch visits rank 0, rank 1, rank 1 and rank "
        "0, so that rank 0 has the first and the last stage. 4 microbatches; F, B and W take 1 tick each; a "
        "chunk stays in memory until its W, and there is room for 4.",
        "ticks",
        25,
        "Rank 1 cannot begin before tick 1, and has 24 ticks of work.",
        Pipeline(4, (0, 1, 1, 0), _SPLIT, (4, 4)),
    ),
)

_COLLECTIVES = (
    CollectivePuzzle(
        "Telephone tree",
        "Broadcast: rank 0 has the data, and all 8 ranks want it. In each round a rank can send one message "
        "and receive one.",
        "rounds",
        3,
        "Each rank that has the data can tell one other in a round: 1, 2, 4, 8.",
        Exchange(*_broadcast(8, ("A",))),
    ),
    CollectivePuzzle(
        "In four pieces",
        "Broadcast again, on 4 ranks, but the data is cut into parts A to D, and a message carries one part.",
        "rounds",
        5,
        "Rank 0 sends one part a round, so the last part leaves it in round 4 or later. Then 2 ranks have "
        "it, and it takes another round until 4 do.",
        Exchange(*_broadcast(4, _FOUR), parts_a_message=1),
    ),
    CollectivePuzzle(
        "Six at a table",
        "All-gather: each of 6 ranks has one part, and everyone wants all six. A message can carry many "
        "parts, but no rank may send more than 5 in all.",
        "rounds",
        3,
        "A rank's holdings at most double in a round: 1, 2, 4, 8. And everyone has to receive 5 parts, so "
        "some rank has to send 5.",
        Exchange(*_all_gather(6), most_parts=5),
    ),
    CollectivePuzzle(
        "Five friends",
        "All-reduce on 5 ranks: everyone wants the sum of all five. A sum that arrives is added to the one "
        "there, or takes its place if it contains it; nothing may be counted twice.",
        "rounds",
        4,
        "Three rounds would do for 8 ranks, but not for 5: a search through all plans finds none.",
        Exchange(*_all_reduce(5, ("A",))),
    ),
    CollectivePuzzle(
        "Short cut",
        "All-reduce on 4 ranks, with the data in parts A to D. No rank may send more than 6 parts, that is "
        "3/2 S bytes, the least that an all-reduce can do with. A ring needs 6 rounds for it.",
        "rounds",
        3,
        "After one round a rank holds sums of 2 contributions at most. So in a plan of 2 rounds everyone "
        "receives all 4 parts in both, and 8 parts are sent by someone.",
        Exchange(*_all_reduce(4, _FOUR), most_parts=6),
    ),
    CollectivePuzzle(
        "One part at a time",
        "All-reduce on 4 ranks with parts A to D, and a message carries one part.",
        "rounds",
        6,
        "For each part, 3 messages have to pass until someone has its sum, and 3 more until all have: 24 "
        "messages for four parts, and 4 can pass in a round.",
        Exchange(*_all_reduce(4, _FOUR), parts_a_message=1),
    ),
    CollectivePuzzle(
        "By way of a friend",
        "All-to-all on 4 ranks: part 01 is what rank 0 has for rank 1, and so on. You have 2 rounds. Keep "
        "the number of parts that the busiest rank sends low.",
        "parts",
        4,
        "In 2 rounds a rank hears from 2 others, so at least one of its 3 parts comes by way of a third rank"
        " and is sent twice. That makes 16 sends for 4 ranks.",
        Exchange(*_all_to_all(4), most_rounds=2),
    ),
    CollectivePuzzle(
        "Two nodes",
        "All-reduce on two nodes of 4 ranks (0 to 3 and 4 to 7), with parts A to D. Links inside a node are "
        "fast; each rank may send 1 part to the other node, no more, in the whole plan.",
        "rounds",
        5,
        "Each part crosses once in each direction, so a whole node's sum has to cross: 2 rounds until "
        "someone has it, 1 to cross, and 2 more until all 4 ranks have what came.",
        Exchange(*_all_reduce(8, _FOUR), nodes=(0, 0, 0, 0, 1, 1, 1, 1), most_across=1),
    ),
)

BOARDS: dict[str, Puzzle] = {board.name: board for board in (*_PIPELINES, *_COLLECTIVES)}


def board(name: str) -> Puzzle:
    """Return the board of this name, in capitals or not.

    Raises:
        KeyError: there is none; the text lists those that there are.
    """
    for known, found in BOARDS.items():
        if isinstance(name, str) and known.lower() == name.strip().lower():
            return found
    raise UnknownBoard(f"There is no board {name!r}. Boards are: {', '.join(BOARDS)}.")


class UnknownBoard(KeyError):
    """A name of no board."""

    def __str__(self) -> str:
        return str(self.args[0])
