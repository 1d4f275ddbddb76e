"""Figures of measured times: every call of every rank, times over sizes with models, ratios to the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..views import units
from ..views.picture import in_words
from ..views.style import FAINT_INK, INK, LEGEND, PAPER, PREDICTION, Figure, Keywords, draw_grid, rank_colour
from .drawable import all_drawable, drawable
from .ledger import note
from .prediction import subject

_WIDTH, _HEIGHT = 7.5, 3.6  # inches
_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#5B6770", "#E69F00")  # of Okabe and Ito
# A model has a colour besides its dashes. Readers with any common colour blindness can tell all five apart.
_MODELS = (INK, "#009E73", "#7a4fa3", "#b8860b", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
_BAR_COLOUR = "#9fb3c8"

Points = Sequence[tuple[float, float]]


def calls(seconds: Sequence[Sequence[float]], title: str = "") -> Figure:
    """Draw the time of each call on each rank, in the order of the calls.

    Args:
        seconds: for each rank the seconds of its calls.
        title: a headline.
    """
    figure, axes = _figure(title)
    factor, unit = units.time_unit(max(map(max, seconds)))
    for rank, own in enumerate(seconds):
        places = [call + 0.12 * (rank - (len(seconds) - 1) / 2) for call in range(1, len(own) + 1)]
        style: Keywords = {"s": 16, "color": rank_colour(rank), "label": f"rank {rank}"}
        axes.scatter(places, [time / factor for time in own], **style)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("call", color=FAINT_INK, fontsize=9)
    axes.set_ylabel(unit, color=FAINT_INK, fontsize=9)
    _legend(axes)
    figure.alt = in_words(
        title,
        [
            f"rank {rank} took {units.time(min(own))} to {units.time(max(own))}"
            for rank, own in enumerate(seconds)
            if own
        ],
    )
    return figure


def sizes(
    measured: Mapping[str, Points],
    models: Mapping[str, Points] | None = None,
    unit: str = "s",
    title: str = "",
    mark: float | None = None,
    yours: float | None = None,
) -> Figure:
    """Draw times or bandwidths over sizes, both on logarithmic axes: measured as points, models as lines.

    Args:
        measured: for each name the pairs of S in bytes and seconds, or bytes per second.
        models: likewise.
        unit: "s" or "B/s".
        title: a headline.
        mark: a size to mark.
        yours: the size that the reader predicted, for `mark`; None is not drawn, another one is noted in the
            ledger.
    """
    size = drawable(yours)
    if mark:
        note(subject("α/β", title), size, mark)
    figure, axes = _figure(title, right=0.7)
    for number, (name, points) in enumerate(measured.items()):
        look: Keywords = {"marker": _MARKERS[number % len(_MARKERS)], "linestyle": "none", "markersize": 5}
        axes.plot(*zip(*points, strict=True), color=_SERIES[number % len(_SERIES)], label=name, **look)
    for number, (name, points) in enumerate((models or {}).items()):
        look = {"linestyle": _DASHES[number % len(_DASHES)], "linewidth": 1.8}
        axes.plot(*zip(*points, strict=True), color=_MODELS[number % len(_MODELS)], label=name, **look)
    axes.set(xscale="log", yscale="log")
    for place, name, colour in ((mark, "α/β", FAINT_INK), (size, "your prediction", PREDICTION["color"])):
        if place:
            axes.axvline(place, color=colour, linewidth=1, label=name)
    _scale(axes, unit)
    _legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))  # so many lines leave no room among them
    told = units.time if unit == "s" else units.rate
    figure.alt = in_words(
        title, [_ends(name, points, told) for name, points in {**measured, **(models or {})}.items()]
    )
    return figure


def _ends(name: str, points: Points, told: Callable[[float], str]) -> str:
    """Put the first and the last point of a series into words."""
    (first, start), (last, end) = points[0], points[-1]
    return f"{name} from {told(start)} at {units.size(first)} to {told(end)} at {units.size(last)}"


def ratios(
    measured: Mapping[str, float], yours: Mapping[str, float | None] | None = None, title: str = ""
) -> Figure:
    """Draw how far numbers are from the truth, which is 1, on a logarithmic axis.

    Args:
        measured: for each name what it says divided by what is true, from top to bottom.
        yours: the reader's predictions; None or a missing name is not drawn, others are noted in the ledger.
        title: a headline.
    """
    answers = all_drawable(yours, measured)
    for name, answer in answers.items():
        note(subject(name, title), answer, measured[name])
    figure, axes = _figure(title, 1.1 + 0.36 * len(measured), left=0.4)
    rows = range(len(measured))
    axes.barh(rows, [value - 1 for value in measured.values()], left=1, height=0.55, color=_BAR_COLOUR)
    guesses = {name: guess for name, guess in answers.items() if guess > 0}
    given = [(guesses[name], row) for row, name in enumerate(measured) if name in guesses]
    if given:
        axes.plot(*zip(*given, strict=True), label="your prediction", **PREDICTION)
        _legend(axes)
    axes.axvline(1, color=INK, linewidth=1.2)
    names = [f"{name}:  × {value:.3g}" for name, value in measured.items()]
    axes.set_yticks(rows, names, color=INK)
    axes.set(xscale="log", ylim=(len(measured) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"× {value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    told = [f"your prediction for {name} × {guess:.3g}" for name, guess in guesses.items()]
    figure.alt = in_words(title, [f"{name} × {value:.3g}" for name, value in measured.items()] + told)
    return figure


def _figure(
    title: str, height: float = _HEIGHT, left: float = 0.1, right: float = 0.97
) -> tuple[Figure, Axes]:
    figure = Figure(_WIDTH, height)
    axes = figure.add_axes((left, 0.55 / height, right - left, 1 - 0.95 / height), facecolor=PAPER)
    figure.text(0.02, 1 - 0.12 / height, title, fontsize=10.5, color=INK, va="top")
    axes.tick_params(colors=FAINT_INK, labelsize=8.5, length=0)
    draw_grid(axes)
    return figure, axes


def _scale(axes: Axes, unit: str) -> None:
    """Put powers of 4 on the size axis, with their unit, and times or rates on the other one."""
    low, high = axes.get_xlim()
    ticks = [4.0**power for power in range(21) if low <= 4.0**power <= high]
    axes.set_xticks(ticks, list(map(units.size, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("S", color=FAINT_INK, fontsize=9)
    write = units.time if unit == "s" else units.rate
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))  # one decade may be all there is
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axes.yaxis.set_minor_locator(NullLocator())


def _legend(axes: Axes, **place: Any) -> None:
    axes.legend(**LEGEND, **place)
