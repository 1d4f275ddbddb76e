"""How matrices lie on the ranks: replicated, sharded by rows or columns, or as partial sums. For lectures.

The words are DTensor's. It draws a formula, from left to right, with the colours of the ranks; it computes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..views.cells import PAGE, sheet, write
from ..views.picture import in_words
from ..views.style import FAINT_INK, INK, PAPER, Colour, Figure, rank_colour, tint

_HEAD = 0.5  # inches, for the title
_FOOT = 0.5  # for names below the matrices
_MARGIN = 0.22
_TALLEST = 1.15  # of a matrix
_UNIT = 0.7  # inches for 1, if the page has room
_SHEET = 0.07  # by which one rank's partial sum lies beside the next one's
_LETTER = 0.078  # width of one between two matrices
_GAP = 0.16
_TINT = 0.55
_WORDS = {"replicate": "replicated", "rows": "rows", "columns": "columns", "partial": "partial sums"}


class Matrix(NamedTuple):
    """A matrix that the ranks hold together.

    Attributes:
        name: its title.
        rows, columns: its size on paper; 1 is what most matrices of the figure have.
        placement: "replicate" (each rank has all of it), "rows" or "columns" (each rank has some),
            "partial" (each rank has a summand of its size).
    """

    name: str
    rows: float
    columns: float
    placement: str


def placements(
    formula: Sequence[tuple[str, float, float, str] | str], title: str = "", world_size: int = 4
) -> Figure:
    """Draw matrices with what stands between them, each shard in the colour of its rank.

    Args:
        formula: from left to right; of matrices what `Matrix` has, while text is written as it is.
        title: a headline.
        world_size: number of ranks.

    Raises:
        ValueError: a placement that is none.
    """
    items = [item if isinstance(item, str) else Matrix(*item) for item in formula]
    for matrix in items:
        if isinstance(matrix, Matrix) and matrix.placement not in _WORDS:
            raise ValueError(f"{matrix.placement!r} is no placement; choose one of {', '.join(_WORDS)}")
    unit = _unit(items, world_size)
    widths = [_width(item, unit, world_size) for item in items]
    tallest = max(item.rows for item in items if isinstance(item, Matrix)) * unit + _sheets(world_size)
    figure, axes = sheet(sum(widths) + _GAP * (len(widths) - 1) + 2 * _MARGIN, _HEAD + tallest + _FOOT, title)
    x, middle = _MARGIN, _HEAD + tallest / 2
    for item, width in zip(items, widths, strict=True):
        if isinstance(item, str):
            write(axes, x + width / 2, middle, item, 10.5)
        else:
            _draw(axes, item, x, middle, unit, world_size)
            write(axes, x + width / 2, _HEAD + tallest + 0.15, item.name, 10)
            write(axes, x + width / 2, _HEAD + tallest + 0.34, _WORDS[item.placement], 8, FAINT_INK)
        x += width + _GAP
    told = [item if isinstance(item, str) else f"{item.name} ({_WORDS[item.placement]})" for item in items]
    figure.alt = in_words(title, [f"{' '.join(told)}, on {world_size} ranks"])
    return figure


def _unit(formula: Sequence[Matrix | str], world_size: int) -> float:
    """Return the inches for 1 with which all matrices find room."""
    matrices = [item for item in formula if isinstance(item, Matrix)]
    fixed = 2 * _MARGIN + _GAP * (len(formula) - 1)
    fixed += sum(_width(item, 0.0, world_size) for item in formula)
    room = (PAGE[0] - fixed) / sum(matrix.columns for matrix in matrices)
    return min(_UNIT, room, _TALLEST / max(matrix.rows for matrix in matrices))


def _sheets(world_size: int) -> float:
    return _SHEET * (world_size - 1)


def _width(item: Matrix | str, unit: float, world_size: int) -> float:
    if isinstance(item, str):
        return _LETTER * len(item)
    return item.columns * unit + (_sheets(world_size) if item.placement == "partial" else 0.0)


def _draw(axes: Axes, matrix: Matrix, x: float, middle: float, unit: float, world_size: int) -> None:
    """Draw a grey sheet for all ranks, bands, or a sheet for each rank, the first one in front."""
    width, height = matrix.columns * unit, matrix.rows * unit
    top = middle - height / 2
    if matrix.placement == "replicate":
        _rectangle(axes, x, top, width, height, tint(FAINT_INK, 0.25))
    for rank in reversed(range(world_size)):
        colour = tint(rank_colour(rank), _TINT)
        if matrix.placement == "rows":
            band = height / world_size
            _rectangle(axes, x, top + rank * band, width, band, colour)
        elif matrix.placement == "columns":
            band = width / world_size
            _rectangle(axes, x + rank * band, top, band, height, colour)
        elif matrix.placement == "partial":
            aside = rank * _SHEET
            lift = _sheets(world_size) / 2 - aside
            _rectangle(axes, x + aside, top + lift, width, height, colour)
    if matrix.placement != "partial":
        edge = Rectangle((x, top), width, height, facecolor="none", edgecolor=INK, linewidth=0.8)
        axes.add_patch(edge)


def _rectangle(axes: Axes, x: float, y: float, width: float, height: float, colour: Colour) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=PAPER, linewidth=0.8))
