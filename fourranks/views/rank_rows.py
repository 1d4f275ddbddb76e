"""Draws what figures with a row for each rank share: axes, the bubble beside each row, and a legend below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from .style import FAINT_INK, INK, PAPER, Figure, Keywords


def style_axes(axes: Axes, title: str) -> None:
    """Give the axes their headline, and a line at the bottom only, that of time."""
    axes.set_facecolor(PAPER)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=FAINT_INK, labelsize=8.5)
    axes.set_title(title, loc="left", color=INK, fontsize=10.5, pad=6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT_INK)


def write_unit(axes: Axes, unit: str) -> None:
    """Write the unit of time at the end of the axis."""
    axes.text(1.005, 0, unit, transform=axes.transAxes, color=FAINT_INK, fontsize=8.5, va="center")


def write_bubbles(axes: Axes, shares: Mapping[int, float], average: float, fontsize: float = 8.5) -> None:
    """Write each rank's share of idle time to the right of its row, and that of all ranks in the headline."""
    style: Keywords = {
        "transform": axes.get_yaxis_transform(),
        "color": FAINT_INK,
        "ha": "right",
        "va": "center",
    }
    for rank, share in shares.items():
        axes.text(1.075, rank, f"{share:.0%}", fontsize=fontsize, **style)
    axes.set_title(f"bubble {average:.0%}", loc="right", color=INK, fontsize=9, pad=6, x=1.075)


def draw_legend(figure: Figure, handles: Sequence[Patch]) -> None:
    """Explain the colours below the axes."""
    style = {"frameon": False, "fontsize": 8, "labelcolor": FAINT_INK}
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), **style)
