"""Pictures of communication: who holds what before and after, and who sent to whom in which round.

`show` draws values that were pulled from the ranks, `steps` the sends that a trace recorded; lectures and
exercises call both. Nothing here knows what an operation ought to do: the pictures show what it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import isclose
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from ..trace import Call
from .style import BLANK, FAINT_INK, INK, Figure, rank_colour, tint

_CELL = 0.46  # inches
_GAP = 2.4  # cells between before and after
_TINT = 0.45
_TITLE_SIZE = 10.5  # points
_PAGE = 8.2  # inches that a notebook shows without scrolling
_HALO = withStroke(linewidth=2.2, foreground="#ffffffb0")  # keeps the edges of stripes out of the digits
_SEARCHED_RANKS = 8  # up to here, sums over some of the ranks are recognized too


def show(before: Sequence[Any], after: Sequence[Any], title: str = "") -> Figure:
    """Draws what every rank held before and after, in the colours of the ranks that it came from.

    A value that was there before has the colour of its rank; a sum is striped with the colours of the ranks
    in it. A value is left uncoloured when more than one origin would explain it.

    Args:
        before: for each rank its tensor, number or (nested) list of them; None where it holds nothing.
        after: the same, afterwards.
        title: the operation, backend and number of ranks.
    """
    old, new = [_values(held) for held in before], [_values(held) for held in after]
    left, right = (max(1, *map(len, side)) for side in (old, new))
    columns, rows = left + _GAP + right, max(len(old), len(new))
    figure = Figure(max(1.0 + _CELL * columns, _title_width(title)), 0.7 + _CELL * rows)
    axes = _grid(figure, columns, rows, title)
    _draw_side(axes, 0, left, old, [[{rank} for _ in row] for rank, row in enumerate(old)], "before")
    _draw_side(axes, left + _GAP, right, new, _origins(old, new), "after")
    _arrow(axes, (left + 0.55, rows / 2), (left + _GAP - 0.55, rows / 2), FAINT_INK)
    return figure


def _values(held: Any) -> list[float]:
    if held is None:
        return []
    if hasattr(held, "tolist"):
        held = held.tolist()
    if isinstance(held, Iterable):
        return [value for item in held for value in _values(item)]
    return [held]


def _origins(old: list[list[float]], new: list[list[float]]) -> list[list[set[int]]]:
    """For each value afterwards the ranks that it came from; none where the values do not tell.

    If every new value was somewhere before, data was only moved. Otherwise it was summed.
    """
    homes: dict[float, set[int]] = defaultdict(set)
    for rank, row in enumerate(old):
        for value in row:
            homes[value].add(rank)
    if all(value in homes for row in new for value in row):
        return [[_home(homes[value], rank) for value in row] for rank, row in enumerate(new)]
    return [
        [_summands(old, rank, place, total) for place, total in enumerate(row)]
        for rank, row in enumerate(new)
    ]


def _home(ranks: set[int], own: int) -> set[int]:
    if own in ranks:
        return {own}
    return ranks if len(ranks) == 1 else set()


def _summands(old: list[list[float]], rank: int, place: int, total: float) -> set[int]:
    """The ranks whose values, at one and the same place, add up to `total`; the most ranks first."""
    if rank < len(old) and old[rank][place : place + 1] == [total]:
        return {rank}
    holders = [holder for holder, row in enumerate(old) if row]
    shared = range(min(len(old[holder]) for holder in holders)) if holders else range(0)
    places = sorted(shared, key=lambda other: other != place)
    for size in range(len(holders), 0, -1) if len(holders) <= _SEARCHED_RANKS else [len(holders)]:
        found = [
            set(some)
            for place in places
            for some in combinations(holders, size)
            if isclose(sum(old[holder][place] for holder in some), total, rel_tol=1e-6, abs_tol=1e-9)
        ]
        if found:
            return found[0] if all(other == found[0] for other in found) else set()
    return set()


def _title_width(title: str) -> float:
    return 0.3 + 0.62 * _TITLE_SIZE / 72 * len(title)


def _grid(figure: Figure, columns: float, rows: int, title: str) -> Axes:
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.75 / width, 0.08 / height, _CELL * columns / width, _CELL * rows / height))
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    _label_ranks(axes, title, [rank + 0.5 for rank in range(rows)])
    return axes


def _label_ranks(axes: Axes, title: str, heights: Sequence[float]) -> None:
    axes.axis("off")
    width, height = axes.figure.get_size_inches()
    axes.figure.text(0.12 / width, 1 - 0.1 / height, title, color=INK, fontsize=_TITLE_SIZE, va="top")
    for rank, y in enumerate(heights):
        _text(axes, -0.01 * axes.get_xlim()[1], y, f"rank {rank}", ha="right")


def _text(
    axes: Axes, x: float, y: float, text: str, size: float = 9, color: str = INK, **alignment: str
) -> Text:
    return axes.text(x, y, text, color=color, fontsize=size, **{"ha": "center", "va": "center", **alignment})


def _draw_side(
    axes: Axes, x: float, width: int, rows: list[list[float]], origins: list[list[set[int]]], name: str
) -> None:
    _text(axes, x + width / 2, -0.16, name, 8.5, FAINT_INK, va="bottom")
    for rank, row in enumerate(rows):
        for column, value in enumerate(row):
            _draw_cell(axes, x + column, rank, value, sorted(origins[rank][column]))
        if not row:
            _text(axes, x + width / 2, rank + 0.5, "–", color=FAINT_INK)


def _draw_cell(axes: Axes, x: float, y: float, value: float, ranks: list[int]) -> None:
    gap, side = 0.05, 0.9
    corner = (x + gap, y + gap)
    box = FancyBboxPatch(corner, side, side, boxstyle="round,pad=0,rounding_size=0.12", lw=0, fc=BLANK)
    axes.add_patch(box)
    for stripe, rank in enumerate(ranks):
        share = side / len(ranks)
        corner = (x + gap, y + gap + stripe * share)
        band = Rectangle(corner, side, share, lw=0, fc=tint(rank_colour(rank), _TINT))
        axes.add_patch(band)
        band.set_clip_path(box)
    text = str(int(value)) if value == int(value) else f"{value:.3g}"
    number = _text(axes, x + 0.5, y + 0.52, text, 9.5 if len(text) <= 4 else 7.5)
    number.set_path_effects([_HALO])


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    style = {"arrowstyle": "-|>,head_width=0.22,head_length=0.42", "color": color, "lw": 1.9}
    axes.annotate("", xy=end, xytext=start, arrowprops={**style, "shrinkA": 0, "shrinkB": 0})


class _Message(NamedTuple):
    src: int
    dst: int
    halves: dict[int, Call]  # the send and the recv, as far as they were recorded, by rank


def steps(calls_by_rank: Sequence[Sequence[Call]], title: str = "") -> Figure:
    """Draws every recorded message as an arrow from its sender, in the sender's colour, round after round.

    A message belongs to the round after the latest one that its sender or its receiver had finished before.

    Args:
        calls_by_rank: for each rank its calls (`Trace.calls`); only sends and receives are drawn.
        title: the algorithm and the number of ranks.
    """
    world_size, rounds = len(calls_by_rank), _rounds(_messages(calls_by_rank))
    columns = max(1, len(rounds))
    column_width = max(0.7, min(1.1, _PAGE / columns))
    figure = Figure(max(1.0 + column_width * columns, _title_width(title)), 0.95 + 0.42 * world_size)
    axes = _lanes(figure, world_size, columns, title)
    for column, messages in enumerate(rounds):
        _text(axes, column + 0.5, -0.62, f"round {column + 1}", va="bottom")
        _text(axes, column + 0.5, -0.6, _traffic(messages), 7.5, FAINT_INK, va="top")
        for message in messages:
            _arrow(axes, (column + 0.14, message.src), (column + 0.86, message.dst), rank_colour(message.src))
    return figure


def _messages(calls_by_rank: Sequence[Sequence[Call]]) -> list[_Message]:
    """The messages that were sent, in the order in which both of their ranks had come."""
    messages: dict[tuple, _Message] = {}
    for rank, row in enumerate(calls_by_rank):
        for call in row:
            if call.is_point_to_point and call.peer is not None:
                src, dst = (rank, call.peer) if call.op == "send" else (call.peer, rank)
                key = (src, dst, call.group, call.tag, call.seq)
                messages.setdefault(key, _Message(src, dst, {})).halves[rank] = call
    sent = [message for message in messages.values() if message.src in message.halves]
    return sorted(sent, key=lambda message: max(call.start for call in message.halves.values()))


def _rounds(messages: list[_Message]) -> list[list[_Message]]:
    rounds: list[list[_Message]] = []
    finished: dict[int, list[tuple[float, int]]] = defaultdict(list)  # by rank: (when, in which round)
    for message in messages:
        halves = message.halves.items()
        earlier = [turn for rank, call in halves for when, turn in finished[rank] if when <= call.start]
        turn = max(earlier, default=-1) + 1
        for rank, call in halves:
            finished[rank].append((call.start if call.end is None else call.end, turn))
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(message)
    return rounds


def _traffic(messages: list[_Message]) -> str:
    sizes = [message.halves[message.src].nbytes for message in messages]
    if len(set(sizes)) == 1:
        return f"{len(sizes)} × {sizes[0]:,} B"
    return f"{len(sizes)} messages, {sum(sizes):,} B"


def _lanes(figure: Figure, world_size: int, columns: int, title: str) -> Axes:
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.75 / width, 0.02, 1 - 0.9 / width, 1 - 0.32 / height))
    axes.set(xlim=(0, columns), ylim=(world_size - 0.5, -1.5))
    _label_ranks(axes, title, range(world_size))
    for rank in range(world_size):
        axes.axhline(rank, color=tint(rank_colour(rank), 0.35), lw=1.2, zorder=0)
    for column in range(1, columns):
        axes.axvline(column, ymax=1 - 0.9 / (world_size + 1), color=BLANK, lw=1, zorder=0)
    return axes
