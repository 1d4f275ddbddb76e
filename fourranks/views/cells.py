"""Values as coloured cells, one row a rank, and arrows between them: the alphabet of collective diagrams.

`collective` draws with it what an operation did, `steps` what an algorithm did round by round. Coordinates
are inches on the figure, from its upper left corner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isfinite
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from .style import BLANK, INK, SMALLEST_TEXT, Figure, Keywords, rank_colour, tint

PAGE = (9.0, 6.8)  # inches that a notebook shows without scrolling
LABELS = 0.75  # inches for "rank 0" on the left
_TITLE_SIZE = 10.5  # points
_POINTS_OF_A_ROW = 72 * 0.8  # for an inch of its height
_TEXT_SIZE = 9.5
_DIGIT = 0.61 / 72  # width of a digit, in inches for each point of its size
_MARGIN = 0.05  # of a cell, on each side
_TINT = 0.45


class Held(NamedTuple):
    """The holdings of a rank: values, and for each of them the ranks that it came from (none: not known)."""

    values: list[float]
    origins: list[set[int]]


class Size(NamedTuple):
    """Width and height of a cell."""

    width: float
    height: float


class Grid(NamedTuple):
    """A place for cells, one row a rank: its upper left corner and the size of a cell."""

    x: float
    y: float
    size: Size

    def corner(self, rank: int, place: int) -> tuple[float, float]:
        return self.x + place * self.size.width, self.y + rank * self.size.height

    def middle(self, rank: int) -> float:
        """Return the height of a rank's row."""
        return self.y + (rank + 0.5) * self.size.height


def columns(held: Sequence[Held]) -> int:
    """Count the cells of the longest row."""
    return max((len(row.values) for row in held), default=0)


def sheet(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Make an empty figure with a title, wide enough for it; returns it and its axes."""
    figure = Figure(max(width, 0.3 + 0.62 * _TITLE_SIZE / 72 * len(title)), height)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, figure.get_figwidth()), ylim=(height, 0))
    axes.axis("off")
    write(axes, 0.12, 0.12, title, _TITLE_SIZE, ha="left", va="top")
    return figure, axes


def write(
    axes: Axes, x: float, y: float, text: str, size: float = 9, color: str = INK, **alignment: str
) -> Text:
    style: Keywords = {"ha": "center", "va": "center", **alignment}
    return axes.text(x, y, text, color=color, fontsize=size, **style)


def name_ranks(axes: Axes, grid: Grid, world_size: int) -> None:
    """Write the ranks' names to the left of their rows, as many as there is room for."""
    size = max(SMALLEST_TEXT, min(9, 55 * grid.size.height))
    for rank in range(0, world_size, ceil(size / (_POINTS_OF_A_ROW * grid.size.height))):
        write(axes, grid.x - 0.1, grid.middle(rank), f"rank {rank}", size, ha="right")


def draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    style = {"arrowstyle": "-|>,head_width=0.22,head_length=0.42", "color": color, "lw": 1.9}
    axes.annotate("", xy=end, xytext=start, arrowprops={**style, "shrinkA": 0, "shrinkB": 0})


def draw_cells(axes: Axes, grid: Grid, held: Sequence[Held]) -> None:
    """Draw what each rank holds, every value striped with the colours of the ranks that it came from."""
    places = [(rank, place) for rank, row in enumerate(held) for place in range(len(row.values))]
    if not places:
        return
    boxes = _boxes(grid, places)
    axes.add_patch(PathPatch(boxes, linewidth=0, facecolor=BLANK))
    stripes = [
        stripe
        for rank, place in places
        for stripe in _stripes(grid.corner(rank, place), grid.size, held[rank].origins[place])
    ]
    shapes, colours = [shape for shape, _ in stripes], [tint(colour, _TINT) for _, colour in stripes]
    drawn = axes.add_collection(PolyCollection(shapes, linewidths=0, facecolors=colours), autolim=False)
    drawn.set_clip_path(PathPatch(boxes, transform=axes.transData))
    for rank, place in places:
        _write_value(axes, grid, rank, place, held[rank])


def outline(axes: Axes, grid: Grid, places: Sequence[tuple[int, int]]) -> None:
    """Put a frame around the cells at these (rank, place)."""
    if places:
        axes.add_patch(PathPatch(_boxes(grid, places), linewidth=1.2, fill=False, edgecolor=INK))


def _boxes(grid: Grid, places: Sequence[tuple[int, int]]) -> Path:
    """Draw the round-cornered boxes of some cells as one path: thousands are drawn as fast as one."""
    width, height = grid.size
    gap = _MARGIN * min(width, height)
    style = f"round,pad=0,rounding_size={0.12 * min(width, height)}"
    box = FancyBboxPatch((gap, gap), width - 2 * gap, height - 2 * gap, boxstyle=style).get_path()
    corners = np.array([grid.corner(rank, place) for rank, place in places])
    vertices = corners[:, None, :] + np.asarray(box.vertices)[None, :, :]
    return Path(vertices.reshape(-1, 2), np.tile(np.asarray(box.codes), len(places)))


def _stripes(corner: tuple[float, float], size: Size, ranks: set[int]) -> Iterator[tuple[np.ndarray, str]]:
    """Yield shape and colour of a stripe for each colour of these ranks, across the cell's longer side."""
    colours = list(dict.fromkeys(rank_colour(rank) for rank in sorted(ranks)))
    upright = size.height < 0.7 * size.width
    for number, colour in enumerate(colours):
        start, end = number / len(colours), (number + 1) / len(colours)
        x, y = ((start, end), (0, 1)) if upright else ((0, 1), (start, end))
        shape = np.array([(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])])
        yield np.array(corner) + shape * np.array(size), colour


def write_value(value: float) -> str:
    """Write a number as a cell has it."""
    return str(int(value)) if isfinite(value) and value == int(value) else f"{value:.3g}"


def _write_value(axes: Axes, grid: Grid, rank: int, place: int, held: Held) -> None:
    value, origins = held.values[place], held.origins[place]
    text = write_value(value)
    size = min(_TEXT_SIZE, 0.78 * grid.size.width / (_DIGIT * len(text)), 50 * grid.size.height)
    if size < SMALLEST_TEXT:  # too small to be read
        return
    x, y = grid.corner(rank, place)
    written = write(axes, x + 0.5 * grid.size.width, y + 0.52 * grid.size.height, text, size)
    if len(origins) > 1:  # keeps the edges of stripes out of the digits
        written.set_path_effects([withStroke(linewidth=0.23 * size, foreground="#ffffffb0")])
