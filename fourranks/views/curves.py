"""Lines over a common axis: losses, above all. For lectures, after a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from matplotlib.axes import Axes

from .style import BLANK, FAINT_INK, INK, PAPER, Figure

Line: TypeAlias = Sequence[float] | tuple[Sequence[float], Sequence[float]]

# Not the colours of ranks. Dashes tell lines apart where colours do not; the first is broad, to lie below.
_LOOKS = (
    {"color": "#9fb3c8", "linestyle": "-", "linewidth": 4.0},
    {"color": INK, "linestyle": "-", "linewidth": 1.6},
    {"color": "#D55E00", "linestyle": (0, (5, 1.5)), "linewidth": 1.6},
    {"color": "#7a4fa3", "linestyle": (0, (1.5, 1)), "linewidth": 1.8},
    {"color": "#00796b", "linestyle": (0, (6, 1.5, 1.5, 1.5)), "linewidth": 1.6},
    {"color": "#b8860b", "linestyle": (0, (1, 2.5)), "linewidth": 2.2},
)


def curves(
    lines: Mapping[str, Line],
    x: str = "step",
    y: str = "loss",
    title: str = "",
    log: bool = False,
    top: float | None = None,
    marks: Mapping[float, str] | None = None,
) -> Figure:
    """Draws up to six lines and their names.

    Args:
        lines: for each name its values, by their number from 0 on, or a pair (places, values).
        x, y: what the axes show, with its unit.
        title: a headline.
        log: whether the y axis is logarithmic.
        top: what lies above is cut off, for instance of a run that diverges.
        marks: names of places on the x axis, each with a vertical line.
    """
    if len(lines) > len(_LOOKS):
        raise ValueError(f"{len(lines)} lines cannot be told apart; draw at most {len(_LOOKS)}")
    figure = Figure(7.5, 3.1)
    axes = figure.add_axes((0.1, 0.17, 0.58, 0.71), facecolor=PAPER)
    for (name, line), look in zip(lines.items(), _LOOKS, strict=False):
        places, values = line if isinstance(line, tuple) else (range(len(line)), line)
        axes.plot(places, values, label=name, **look)
    axes.set_yscale("log" if log else "linear")
    if top is not None:
        axes.set_ylim(top=top)
    _mark(axes, marks or {})
    _style(axes, x, y, title)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


def _mark(axes: Axes, marks: Mapping[float, str]) -> None:
    for place, name in marks.items():
        axes.axvline(place, color=FAINT_INK, linewidth=1, linestyle=":")
        style = {"rotation": 90, "ha": "right", "va": "top", "fontsize": 8.5, "color": FAINT_INK}
        axes.text(place, 0.97, name, transform=axes.get_xaxis_transform(), **style)


def _style(axes: Axes, x: str, y: str, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(x, color=FAINT_INK, fontsize=8.5)
    axes.set_ylabel(y, color=FAINT_INK, fontsize=8.5)
    axes.tick_params(which="both", colors=FAINT_INK, labelsize=8.5)
    axes.grid(color=BLANK)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT_INK)
