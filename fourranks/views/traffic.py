"""The traffic matrix of a trace: how many bytes each rank sent to each other one, point to point."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from ..naming import counted
from ..trace import Trace
from . import units
from .picture import in_words
from .style import BLANK, FAINT_INK, INK, PAPER, RANK_COLOURS, Colour, Figure, Keywords, ink_on, tint

_CELL = 0.62  # inches
_SMALL_WORLD = 8  # up to here a cell has room for its number
_LARGE = 4.6  # inches that the matrix of a large world takes
_FROM_LIGHT_TO_DARK: tuple[Colour, ...] = (tint(RANK_COLOURS[0], 0.12), RANK_COLOURS[0], "#003a5c")
_SHADES = LinearSegmentedColormap.from_list("bytes", list(map(to_rgb, _FROM_LIGHT_TO_DARK)))


def traffic(trace: Trace, title: str = "") -> Figure:
    """Draw one row a sender, one column a receiver; the darker, the more bytes.

    Only messages are drawn. The messages inside a collective are the backend's own choice and are not
    recorded; how many bytes went into collectives is said below.

    Args:
        trace: the recorded one.
        title: a headline.
    """
    matrix = trace.traffic_matrix()
    side = _CELL * len(matrix) if len(matrix) <= _SMALL_WORLD else _LARGE
    most = max(map(max, matrix))
    note = _note(trace, most)
    margin = 0.2 * (1 + note.count("\n") + bool(note))
    figure = Figure(max(side + 2.3, 5.2), side + 0.95 + margin)
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.85 / width, margin / height, side / width, side / height))
    shown = [[nbytes or float("nan") for nbytes in row] for row in matrix]
    axes.imshow(shown, cmap=_SHADES, vmin=0, vmax=most or 1)
    _style_axes(axes, len(matrix))
    if len(matrix) <= _SMALL_WORLD:
        _write_numbers(axes, matrix, most)
    _write_totals(axes, matrix)
    left = 0.12 / width
    figure.text(left, 1 - 0.12 / height, title or _headline(trace), color=INK, fontsize=10.5, va="top")
    figure.text(left, 0.1 / height, note, color=FAINT_INK, fontsize=8, va="bottom")
    figure.alt = in_words(title or _headline(trace), [*_told(matrix), *note.splitlines()])
    return figure


def _told(matrix: list[list[int]]) -> Iterator[str]:
    """Put what each rank sent into words."""
    for rank, row in enumerate(matrix):
        sent = ", ".join(f"{units.size(nbytes)} to rank {dst}" for dst, nbytes in enumerate(row) if nbytes)
        yield f"rank {rank} sent {sent or 'nothing'}"


def _headline(trace: Trace) -> str:
    sends = [call for row in trace.calls for call in row if call.op == "send"]
    if not sends:
        return f"no messages on {trace.world_size} ranks"
    total = units.size(sum(call.nbytes for call in sends))
    return f"{counted(len(sends), 'message')}, {total}, on {trace.world_size} ranks"


def _note(trace: Trace, most: int) -> str:
    """Say what the shades of a large matrix mean, and what it leaves out."""
    scale = f"darkest: {units.size(most)}" if trace.world_size > _SMALL_WORLD and most else ""
    collectives = (call for row in trace.calls for call in row if not call.is_point_to_point)
    nbytes = sum(call.nbytes for call in collectives)
    left_out = (
        f"without {units.size(nbytes)} that the ranks put into collectives:\nthe backend chooses their way"
    )
    return "\n".join(filter(None, (scale, left_out if nbytes else "")))


def _style_axes(axes: Axes, world_size: int) -> None:
    step = 1 if world_size <= 2 * _SMALL_WORLD else 4
    axes.set_facecolor(BLANK)
    axes.set_xticks(range(0, world_size, step))
    axes.set_yticks(range(0, world_size, step), [f"rank {rank}" for rank in range(0, world_size, step)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.set_xlabel("to rank", color=FAINT_INK, fontsize=8.5)
    axes.xaxis.set_label_position("top")
    axes.spines[:].set_visible(False)
    borders = [rank - 0.5 for rank in range(1, world_size)]
    axes.hlines(borders, -0.5, world_size - 0.5, color=PAPER, lw=2 if world_size <= _SMALL_WORLD else 0.7)
    axes.vlines(borders, -0.5, world_size - 0.5, color=PAPER, lw=2 if world_size <= _SMALL_WORLD else 0.7)


def _write_numbers(axes: Axes, matrix: list[list[int]], most: int) -> None:
    for src, row in enumerate(matrix):
        for dst, nbytes in enumerate(row):
            if nbytes:
                color = ink_on(_SHADES(nbytes / most)[:3])
                axes.text(dst, src, units.size(nbytes), color=color, fontsize=7.5, ha="center", va="center")


def _write_totals(axes: Axes, matrix: list[list[int]]) -> None:
    """Write to the right of each row what that rank sent in all."""
    style: Keywords = {"color": FAINT_INK, "fontsize": 8 if len(matrix) <= _SMALL_WORLD else 6.5}
    edge = len(matrix) - 0.5
    axes.text(edge + 0.02 * len(matrix), -0.5, "sent", va="bottom", **style)
    for rank, row in enumerate(matrix):
        axes.text(edge + 0.02 * len(matrix), rank, units.size(sum(row)), va="center", **style)
