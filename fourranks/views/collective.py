"""The ranks' holdings before and after an operation, drawn from values that were pulled from the ranks.

Lectures and exercises call `show`. It does not know what an operation ought to do: it shows what it did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, zip_longest
from math import isclose
from typing import Any

from matplotlib.axes import Axes

from ..naming import some_of
from ..protocol.looks import MOST_VALUES, count, flat
from .cells import (
    LABELS,
    PAGE,
    Grid,
    Held,
    Size,
    columns,
    draw_arrow,
    draw_cells,
    name_ranks,
    sheet,
    write,
    write_value,
)
from .picture import in_words
from .style import FAINT_INK, Figure

_CELL = 0.46  # inches
_GAP = 1.1  # inches between before and after
_HEAD = 0.62  # inches above the cells
_MOST_TOLD = 8  # values of a rank
_SEARCHED_RANKS = 8  # up to here, sums over some of the ranks are recognized too


def show(before: Sequence[Any], after: Sequence[Any], title: str = "") -> Figure:
    """Draw what every rank held before and after, in the colours of the ranks that it came from.

    A value that was there before has the colour of its rank; a sum is striped with the colours of the ranks
    in it. A value is left uncoloured when more than one origin would explain it.

    Args:
        before: for each rank its tensor, number or (nested) list of them; None where it holds nothing.
        after: the same, afterwards.
        title: the operation, backend and number of ranks.

    Raises:
        ValueError: a rank holds more values than a picture has room for.
    """
    old, new = [_values(held) for held in before], [_values(held) for held in after]
    left = [Held(row, [{rank} for _ in row]) for rank, row in enumerate(old)]
    right = [Held(row, found) for row, found in zip(new, _origins(old, new), strict=True)]
    places = [max(1, columns(side)) for side in (left, right)]
    world_size = max(1, len(old), len(new))
    size = _cell_size(sum(places), world_size)
    width = LABELS + sum(places) * size.width + _GAP
    figure, axes = sheet(width + 0.15, _HEAD + world_size * size.height + 0.1, title)
    first = Grid(LABELS, _HEAD, size)
    second = Grid(width - places[1] * size.width, _HEAD, size)
    name_ranks(axes, first, world_size)
    _draw_side(axes, first, places[0], left, "before")
    _draw_side(axes, second, places[1], right, "after")
    middle = _HEAD + world_size * size.height / 2
    draw_arrow(axes, (second.x - _GAP + 0.25, middle), (second.x - 0.25, middle), FAINT_INK)
    ranks = enumerate(zip_longest(left, right, fillvalue=Held([], [])))
    figure.alt = in_words(
        title, [f"rank {rank} before {_told(one)}, after {_told(other)}" for rank, (one, other) in ranks]
    )
    return figure


def _told(held: Held) -> str:
    """Put what a rank holds into words, as far as it is soon said."""
    return some_of([write_value(value) for value in held.values], _MOST_TOLD) or "nothing"


def _values(held: Any) -> list[float]:
    if (number := count(held)) > MOST_VALUES:
        raise ValueError(
            f"A rank holds {number:,} values, and a picture has room for {MOST_VALUES}. Run the operation on "
            "smaller tensors, or show a part of them: x[:8]."
        )
    return flat(held)


def _cell_size(places: int, world_size: int) -> Size:
    """Return the largest size that the page allows: flat for many ranks, narrow where they hold much."""
    return Size(min(_CELL, (PAGE[0] - LABELS - _GAP) / places), min(_CELL, PAGE[1] / world_size))


def _draw_side(axes: Axes, grid: Grid, places: int, held: list[Held], name: str) -> None:
    middle = grid.x + places * grid.size.width / 2
    write(axes, middle, _HEAD - 0.06, name, 8.5, FAINT_INK, va="bottom")
    draw_cells(axes, grid, held)
    for rank, row in enumerate(held):
        if not row.values:
            write(axes, middle, grid.middle(rank), "–", color=FAINT_INK)


def _origins(old: list[list[float]], new: list[list[float]]) -> list[list[set[int]]]:
    """Find for each value afterwards the ranks that it came from; none where the values do not tell.

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
    """Return the ranks whose values, at one and the same place, add up to `total`; the most ranks first."""
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
