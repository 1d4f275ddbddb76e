"""What the reader predicted, beside what the ranks did and what a formula says. For lectures, after a run."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .style import BLANK, FAINT_INK, INK, PAPER, Figure

_BAR_COLOUR = "#9fb3c8"
_FORMULA = {"marker": "|", "markersize": 20, "markeredgewidth": 2.5, "color": INK, "linestyle": "none"}
_YOURS = {"marker": "D", "markersize": 8, "color": "#D55E00", "markeredgecolor": PAPER, "linestyle": "none"}


def compare(
    measured: Mapping[str, float],
    formula: Mapping[str, float | None] | None = None,
    yours: Mapping[str, float | None] | None = None,
    unit: str = "",
    title: str = "",
    label: str = "measured",
) -> Figure:
    """Draws one bar for each measured number, with the formula's and the reader's number marked on it.

    Args:
        measured: the name of each run and what was measured, from top to bottom.
        formula: what theory says for these names; None or a missing name is not drawn.
        yours: the reader's predictions, likewise.
        unit: what the numbers are in.
        title: a headline.
        label: what the bars are.
    """
    formula, yours = _given(formula, measured), _given(yours, measured)
    figure = Figure(7.5, 1.05 + 0.38 * len(measured))
    height = figure.get_figheight()
    axes = figure.add_axes((0.35, 0.62 / height, 0.59, 1 - 1.0 / height), facecolor=PAPER)
    axes.barh(range(len(measured)), list(measured.values()), height=0.55, color=_BAR_COLOUR)
    axes.plot(list(formula.values()), list(formula), **_FORMULA)
    axes.plot(list(yours.values()), list(yours), **_YOURS)
    furthest = max([*measured.values(), *formula.values(), *yours.values(), 1e-12])
    axes.set(xlim=(0, 1.15 * furthest), ylim=(len(measured) - 0.5, -0.5))
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, x=-0.57)
    _label(axes, measured, unit)
    _legend(figure, label, formula, yours)
    return figure


def _given(numbers: Mapping[str, float | None] | None, names: Mapping[str, float]) -> dict[int, float]:
    """The numbers that there are, by row."""
    found = [(row, (numbers or {}).get(name)) for row, name in enumerate(names)]
    return {row: number for row, number in found if number is not None}


def _label(axes: Axes, measured: Mapping[str, float], unit: str) -> None:
    names = [f"{name}:  {_number(value)} {unit}" for name, value in measured.items()]
    axes.set_yticks(range(len(measured)), names)
    axes.text(1.02, 0, unit, transform=axes.transAxes, color=FAINT_INK, fontsize=8.5, va="top")
    axes.tick_params(axis="y", length=0, labelsize=9, labelcolor=INK)
    axes.tick_params(axis="x", colors=FAINT_INK, labelsize=8.5)
    axes.grid(axis="x", color=BLANK)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def _legend(figure: Figure, label: str, formula: dict[int, float], yours: dict[int, float]) -> None:
    handles = [Patch(facecolor=_BAR_COLOUR, label=label)]
    if formula:
        handles.append(Line2D([], [], **{**_FORMULA, "markersize": 11}, label="formula"))
    if yours:
        handles.append(Line2D([], [], **_YOURS, label="your prediction"))
    style = {"frameon": False, "fontsize": 8.5, "labelcolor": FAINT_INK}
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), **style)


def _number(value: float) -> str:
    """Three digits, and no powers of ten for thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
