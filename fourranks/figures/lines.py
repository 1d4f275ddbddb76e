"""Lines over a common axis: losses, above all. For lectures, after a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes

from ..views.picture import in_words
from ..views.style import BLANK, FAINT_INK, INK, LEGEND, PAPER, Figure, Keywords
from .drawable import drawable

Line: TypeAlias = Sequence[float] | tuple[Sequence[float], Sequence[float]]

# Not the colours of ranks. Dashes tell lines apart where colours do not; the first is broad, to lie below.
_LOOKS: tuple[Keywords, ...] = (
    {"color": "#9fb3c8", "linestyle": "-", "linewidth": 4.0},
    {"color": INK, "linestyle": "-", "linewidth": 1.6},
    {"color": "#D55E00", "linestyle": (0, (5, 1.5)), "linewidth": 1.6},
    {"color": "#7a4fa3", "linestyle": (0, (1.5, 1)), "linewidth": 1.8},
    {"color": "#00796b", "linestyle": (0, (6, 1.5, 1.5, 1.5)), "linewidth": 1.6},
    {"color": "#b8860b", "linestyle": (0, (1, 2.5)), "linewidth": 2.2},
    {"color": "#0b5394", "linestyle": (0, (8, 2, 1.5, 2, 1.5, 2)), "linewidth": 1.6},
    {"color": "#8b1a4a", "linestyle": (0, (3, 3)), "linewidth": 2.0},
)

_HEIGHT = 0.71  # of the axes, in parts of the figure
_ROW = 0.055  # of the names of marks, likewise


def curves(
    lines: Mapping[str, Line],
    x: str = "step",
    y: str = "loss",
    title: str = "",
    log: bool = False,
    top: float | None = None,
    marks: Mapping[float, str] | None = None,
    yours: float | None = None,
) -> Figure:
    """Draw up to eight lines and their names.

    Args:
        lines: for each name its values, by their number from 0 on, or a pair (places, values).
        x, y: labels of the axes, with units.
        title: a headline.
        log: whether the y axis is logarithmic.
        top: upper end of the y axis; a run that diverges is cut off there.
        marks: names of places on the x axis, each with a vertical line and above the axes.
        yours: the place that the reader predicted, likewise; None is not drawn.
    """
    if len(lines) > len(_LOOKS):
        raise ValueError(f"{len(lines)} lines cannot be told apart; draw at most {len(_LOOKS)}")
    guess = drawable(yours)
    marks = dict(marks or {}) | ({} if guess is None else {guess: "your prediction"})
    figure = Figure(7.5, 3.1)
    told = [
        f"{name} from {values[0]:.3g} to {values[-1]:.3g}" for name, values in _values(lines) if len(values)
    ]
    figure.alt = in_words(
        title or f"{y} by {x}", [*told, *[f"{name} at {at:g}" for at, name in marks.items()]]
    )
    axes = figure.add_axes((0.1, 0.17, 0.58, _HEIGHT), facecolor=PAPER)
    for (name, line), look in zip(lines.items(), _LOOKS, strict=False):
        places, values = line if isinstance(line, tuple) else (range(len(line)), line)
        axes.plot(places, values, label=name, **look)
    axes.set_yscale("log" if log else "linear")
    if top is not None:
        axes.set_ylim(top=top)
    rows = _mark(axes, marks)
    _style(axes, x, y, title, 72 * figure.get_figheight() * rows * _ROW)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), **LEGEND)
    return figure


def _values(lines: Mapping[str, Line]) -> list[tuple[str, Sequence[float]]]:
    return [(name, line[1] if isinstance(line, tuple) else line) for name, line in lines.items()]


def _mark(axes: Axes, marks: Mapping[float, str]) -> int:
    """Draw the lines and, above the axes, their names; returns how many rows these take."""
    drawn = []
    for place, name in sorted(marks.items(), reverse=True):
        line = axes.axvline(place, color=FAINT_INK, linewidth=1, linestyle=":", clip_on=False)
        style: Keywords = {
            "xycoords": axes.get_xaxis_transform(),
            "textcoords": "offset points",
            "xytext": (3, 1),
        }
        style |= {"va": "bottom", "fontsize": 8.5, "color": FAINT_INK}
        drawn.append((line, axes.annotate(name, (place, 1), **style)))
    axes.get_xlim()  # asked for it, matplotlib fits the axis to its lines; before, nothing has its place
    extents = [name.get_window_extent() for _, name in drawn]
    rows = _rows([(extent.x0, extent.x1) for extent in extents])
    count = max(rows, default=-1) + 1
    left, bottom, width, height = axes.get_position().bounds
    height -= count * _ROW
    axes.set_position((left, bottom, width, height))
    for (line, note), row in zip(drawn, rows, strict=True):
        note.xy = note.xy[0], 1 + row * _ROW / height
        line.set_ydata((0, 1 + (row + 0.8) * _ROW / height))
    return count


def _rows(extents: Sequence[tuple[float, float]]) -> list[int]:
    """Find for each name, from right to left, the lowest row in which it meets neither names nor lines."""
    taken: list[float] = []  # of each row, from where on
    rows: list[int] = []
    for begin, end in extents:
        row = next((row for row, start in enumerate(taken) if end < start), len(taken))
        taken[: row + 1] = [begin - 5] * (row + 1)  # its line goes through the rows below
        rows.append(row)
    return rows


def _style(axes: Axes, x: str, y: str, title: str, above: float) -> None:
    """Style the axes as in every figure; the title stands so many points above them, for names."""
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=6 + above)
    axes.set_xlabel(x, color=FAINT_INK, fontsize=8.5)
    axes.set_ylabel(y, color=FAINT_INK, fontsize=8.5)
    axes.tick_params(which="both", colors=FAINT_INK, labelsize=8.5)
    axes.grid(color=BLANK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT_INK)
