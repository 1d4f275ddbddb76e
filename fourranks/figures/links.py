"""The share of communication in a step, over the speed of the link: models as lines, runs as points."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, PercentFormatter

from ..views import units
from ..views.picture import in_words
from ..views.style import FAINT_INK, INK, LEGEND, PAPER, PREDICTION, Figure, Keywords, draw_grid
from .drawable import all_drawable

_LOOKS: tuple[Keywords, ...] = (
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": "--"},
    {"color": "#00796b", "linestyle": "-."},
    {"color": "#7a4fa3", "linestyle": ":"},
)
_MARKER: Keywords = {
    "marker": "o",
    "markersize": 8,
    "linestyle": "none",
    "color": INK,
    "markeredgecolor": PAPER,
}
_POINTS = 80  # of a line

Share = Callable[[float], float]


def links(
    models: Mapping[str, Share],
    measured: Mapping[str, tuple[float, float]],
    marks: Mapping[str, float],
    yours: Mapping[str, float | None] | None = None,
    title: str = "",
) -> Figure:
    """Draw the share of communication in a step over the bandwidth of the link that carries it.

    Args:
        models: for each name the share, from 0 to 1, as a function of bytes per second and direction.
        measured: for each name (bytes per second, share).
        marks: the bandwidth of each link to name on the axis.
        yours: the reader's predictions of shares, by the name of a link; None is not drawn.
        title: a headline.

    Raises:
        ValueError: more models than can be told apart.
    """
    if len(models) > len(_LOOKS):
        raise ValueError(f"{len(models)} lines cannot be told apart; draw at most {len(_LOOKS)}")
    figure = Figure(9, 4.4)
    axes = figure.add_axes((0.08, 0.13, 0.6, 0.58), facecolor=PAPER)
    places = [*marks.values(), *(bandwidth for bandwidth, _ in measured.values())]
    low, high = min(places) / 2, max(places) * 2
    grid = [low * (high / low) ** (step / (_POINTS - 1)) for step in range(_POINTS)]
    for (name, share), look in zip(models.items(), _LOOKS, strict=False):
        axes.plot(grid, [share(bandwidth) for bandwidth in grid], linewidth=1.8, label=name, **look)
    for name, (bandwidth, spent) in measured.items():
        axes.plot([bandwidth], [spent], label=name, **_MARKER)
    given = [(marks[name], guess) for name, guess in all_drawable(yours, marks).items()]
    if given:
        axes.plot(*zip(*given, strict=True), label="your prediction", **PREDICTION)
    axes.set(xscale="log", xlim=(low, high), ylim=(0, 1.02))
    for name, bandwidth in marks.items():
        axes.axvline(bandwidth, color=FAINT_INK, linewidth=0.8, linestyle=":")
        style: Keywords = {"rotation": 40, "ha": "left", "va": "bottom", "fontsize": 8.5, "color": FAINT_INK}
        axes.text(bandwidth, 1.02, name, transform=axes.get_xaxis_transform(), **style)
    told = [f"{name} {share:.0%} at {units.rate(at)}" for name, (at, share) in measured.items()]
    shares = [
        f"{name} {share(low):.0%} at {units.rate(low)}, {share(high):.0%} at {units.rate(high)}"
        for name, share in models.items()
    ]
    figure.alt = in_words(title, [*shares, *told])
    _style(axes)
    figure.text(0.02, 0.97, title, color=INK, fontsize=10.5, va="top")
    axes.legend(loc="center left", bbox_to_anchor=(1.03, 0.5), **LEGEND)
    return figure


def _style(axes: Axes) -> None:
    axes.set_xlabel("bytes per second, one direction", color=FAINT_INK, fontsize=8.5)
    axes.set_ylabel("of a step spent on communication", color=FAINT_INK, fontsize=8.5)
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.rate(value)))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.minorticks_off()
    draw_grid(axes)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=INK)
