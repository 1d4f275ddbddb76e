"""Drawings of a machine: the ladder of its memories, their bandwidth, its roofline, its topology.

Lectures call these with measured and with published figures (`published`). Axes are logarithmic where figures
are orders of magnitude apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from ..doctor.topology import Topology, distance, nvlinks
from ..views import units
from ..views.picture import in_words
from ..views.style import (
    BLANK,
    FAINT_INK,
    INK,
    LEGEND,
    PAPER,
    PREDICTION,
    RANK_COLOURS,
    RGB,
    Figure,
    Keywords,
    draw_grid,
    ink_on,
    tint,
)
from .drawable import drawable
from .published import Rung

_DOTTED: Keywords = {"color": FAINT_INK, "linestyle": ":", "linewidth": 1}

Roof = tuple[float, float]  # peak in operations per second, bandwidth in bytes per second


def ladder(rungs: Sequence[Rung], title: str = "") -> Figure:
    """Draw what each level of a memory hierarchy holds, how fast it is and how far away, to scale.

    Args:
        rungs: from near to far; None is left out.
        title: a headline.
    """
    figure = Figure(9.5, 1.1 + 0.36 * len(rungs))
    panels = (
        ("holds", [rung.size for rung in rungs], _capacity),
        ("bytes per second", [rung.bandwidth for rung in rungs], _rate),
        ("until the first byte is there", [rung.latency for rung in rungs], units.time),
    )
    height = figure.get_figheight()
    for column, (name, values, shown) in enumerate(panels):
        axes = figure.add_axes(
            (0.245 + 0.255 * column, 0.3 / height, 0.235, 1 - 1.0 / height), facecolor=PAPER
        )
        _dots(axes, values, shown, RANK_COLOURS[column])
        axes.set_title(name, loc="left", fontsize=8.5, color=FAINT_INK)
        axes.set_yticks(
            range(len(rungs)), [rung.name for rung in rungs] if column == 0 else [""] * len(rungs)
        )
    figure.text(0.01, 1 - 0.12 / height, title, color=INK, fontsize=10.5, va="top")
    note = "from one vertical line to the next it is ten times as much"
    figure.text(0.98, 0.1 / height, note, color=FAINT_INK, fontsize=8, ha="right", va="bottom")
    figure.alt = in_words(title, map(_told, rungs))
    return figure


def _told(rung: Rung) -> str:
    """Put one level of the hierarchy into words."""
    shown = ((rung.size, _capacity), (rung.bandwidth, _rate), (rung.latency, units.time))
    return f"{rung.name} {', '.join(write(value) for value, write in shown if value)}"


def _dots(axes: Axes, values: Sequence[float | None], shown: Callable[[float], str], colour: str) -> None:
    known = {row: value for row, value in enumerate(values) if value}
    axes.set_xscale("log")
    axes.hlines(list(known), 1e-12, list(known.values()), color=tint(colour, 0.35), lw=2.5)
    axes.plot(list(known.values()), list(known), "o", color=colour, markersize=7)
    for row, value in known.items():
        axes.annotate(
            shown(value), (value, row), (7, 0), textcoords="offset points", fontsize=8, va="center", color=INK
        )
    least, most = min(known.values()), max(known.values())
    axes.set(xlim=(least / 3, most * (most / least) ** 0.55), ylim=(len(values) - 0.5, -0.5))
    _plain(axes)
    axes.xaxis.set_major_locator(LogLocator(10, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: ""))


def _capacity(nbytes: float) -> str:
    """Write a capacity as vendors do: caches in MiB, memory in GB or TB."""
    if nbytes >= 1e12:
        return f"{nbytes / 1e12:.0f} TB"
    return f"{nbytes / 1e9:.0f} GB" if nbytes >= 1e9 else units.size(nbytes)


def _rate(bandwidth: float) -> str:
    """Write a rate as vendors do: from a thousand GB/s on in TB/s."""
    return f"{bandwidth / 1e12:.3g} TB/s" if bandwidth >= 1e12 else units.rate(bandwidth)


def copies(
    bandwidths: Mapping[str, Mapping[int, float]],
    caches: Mapping[str, int],
    yours: float | None = None,
    title: str = "",
    others: Mapping[str, float] | None = None,
) -> Figure:
    """Draw how fast memory is copied, over the bytes that the copy works on.

    Args:
        bandwidths: for each name of a curve its bytes per second, by bytes.
        caches: where each cache of the machine ends.
        yours: the reader's prediction for the smallest size, in bytes per second.
        title: a headline.
        others: the bandwidth of other memories, for comparison.
    """
    figure, axes = _curves(title, "bytes that are read and written", "read plus written", beside=1.3)
    for colour, (name, curve) in zip(RANK_COLOURS, bandwidths.items(), strict=False):
        axes.plot(list(curve), list(curve.values()), "o-", color=colour, markersize=4, lw=1.5, label=name)
    sizes = [size for curve in bandwidths.values() for size in curve]
    for name, size in caches.items():
        if min(sizes) < size < max(sizes):
            axes.axvline(size, **_DOTTED)
            style: Keywords = {"color": FAINT_INK, "fontsize": 8, "va": "bottom", "ha": "right"}
            axes.text(size, 1.01, f"{name} ends", transform=axes.get_xaxis_transform(), **style)
    for name, bandwidth in (others or {}).items():
        axes.axhline(bandwidth, **_DOTTED)
        style = {"color": FAINT_INK, "fontsize": 8, "va": "center"}
        axes.text(1.01, bandwidth, name, transform=axes.get_yaxis_transform(), **style)
    if (guess := drawable(yours)) is not None:
        axes.plot([min(sizes)], [guess], **PREDICTION, label="your prediction")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.size(value)))
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: units.rate(value)))
    axes.minorticks_off()
    axes.legend(**LEGEND)
    ends = [
        f"{name} {units.rate(curve[size])} at {units.size(size)}"
        for name, curve in bandwidths.items()
        for size in (min(curve), max(curve))
    ]
    figure.alt = in_words(title, ends)
    return figure


def roofline(
    roofs: Mapping[str, Roof],
    points: Mapping[float, float] | None = None,
    yours: float | None = None,
    title: str = "",
) -> Figure:
    """Draw the most operations per second of each machine over the intensity of the work.

    Args:
        roofs: peak and bandwidth of each machine; the first one is that which was measured.
        points: measured operations per second, by intensity.
        yours: where the reader expects the first machine's ridge, in operations per byte.
        title: a headline.
    """
    x = "intensity: operations per byte that passes the memory"
    figure, axes = _curves(title, x, "operations per second", beside=2.8)
    points = points or {}
    ridges = [peak / bandwidth for peak, bandwidth in roofs.values()]
    least, most = min([0.1, *(at / 2 for at in points)]), max([4 * max(ridges), *points])
    for colour, ridge, (name, (peak, bandwidth)) in zip(RANK_COLOURS, ridges, roofs.items(), strict=False):
        style: Keywords = {"color": colour, "lw": 2, "label": f"{name}: ridge at {ridge:.0f}"}
        axes.plot([least, ridge, most], [least * bandwidth, peak, peak], **style)
    if points:
        style = {"color": RANK_COLOURS[0], "markersize": 6, "label": "measured on this machine"}
        axes.plot(list(points), list(points.values()), "o", **style)
    if (guess := drawable(yours)) is not None:
        axes.plot([guess], [next(iter(roofs.values()))[0]], **PREDICTION, label="your ridge")
    axes.set(xscale="log", yscale="log", xlim=(least, most))
    axes.minorticks_off()
    if max(peak for peak, _ in roofs.values()) < 1e12:  # one machine: its own decade needs more than one tick
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _flops(value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    told = [f"{_flops(rate)} measured at an intensity of {at:.3g}" for at, rate in points.items()]
    ridged = zip(roofs.items(), ridges, strict=True)
    figure.alt = in_words(
        title,
        [f"{name} up to {_flops(peak)}, ridge at {ridge:.0f}" for (name, (peak, _)), ridge in ridged] + told,
    )
    return figure


def _flops(value: float) -> str:
    factor, name = next(
        (unit for unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= unit[0]), (1e6, "M")
    )
    return f"{value / factor:g} {name}FLOP/s"


def topology(found: Topology, title: str = "") -> Figure:
    """Draw the table of a topology, each entry in the colour of how near the two devices are."""
    count = len(found.devices)
    side = 0.31 * count + 0.5
    figure = Figure(max(side + 2.0, 6), side + 0.8)
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.75 / width, 0.15 / height, side / width, side / height))
    links = sorted(set(found.entries.values()) - {"X"}, key=distance)
    table = [[found.entries.get((one, other), "?") for other in found.devices] for one in found.devices]
    axes.imshow([[_nearness(link) for link in row] for row in table])
    for row, links_of_one in enumerate(table):
        for column, link in enumerate(links_of_one):
            style: Keywords = {
                "fontsize": 6.5,
                "ha": "center",
                "va": "center",
                "color": ink_on(_nearness(link)),
            }
            axes.text(column, row, "" if link == "X" else link, **style)
    borders = [number - 0.5 for number in range(1, count)]
    axes.hlines(borders, -0.5, count - 0.5, color=PAPER, lw=1)
    axes.vlines(borders, -0.5, count - 0.5, color=PAPER, lw=1)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), xticks=range(count), yticks=range(count))
    axes.set_xticklabels(found.devices, rotation=90, fontsize=7)
    axes.set_yticklabels(found.devices, fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    handles = [
        Line2D([], [], marker="s", linestyle="none", markersize=9, color=_nearness(link), label=link)
        for link in links
    ]
    if handles:
        place = (side + 0.85) / width, 0.5
        figure.legend(handles=handles, loc="center left", bbox_to_anchor=place, **LEGEND)
    figure.text(0.01, 1 - 0.1 / height, title, color=INK, fontsize=10.5, va="top")
    rows = zip(found.devices, table, strict=True)
    figure.alt = in_words(title, [f"{device} to all: {' '.join(row)}" for device, row in rows])
    return figure


_SHADES = {"PIX": 0.75, "PXB": 0.6, "PHB": 0.45, "NODE": 0.3, "SYS": 0.15, "SOC": 0.15}


def _nearness(link: str) -> RGB:
    """Return the colour of a link: NVLinks have one, ways over PCIe another, the darker the nearer."""
    if link == "X":
        return to_rgb(BLANK)
    if count := nvlinks(link):
        return tint(RANK_COLOURS[2], 0.25 + 0.4 * min(count, 18) / 18)
    return tint(RANK_COLOURS[1], _SHADES.get(link, 0.0))


def _curves(title: str, x: str, y: str, beside: float = 0.3) -> tuple[Figure, Axes]:
    """Make a figure for curves, with so many inches to the right of them."""
    width = 7.6 + beside
    figure = Figure(width, 4)
    axes = figure.add_axes((1.1 / width, 0.13, 6.5 / width, 0.72), facecolor=PAPER)
    _plain(axes)
    axes.set_xlabel(x, color=FAINT_INK, fontsize=8.5)
    axes.set_ylabel(y, color=FAINT_INK, fontsize=8.5)
    figure.text(0.02, 0.97, title, color=INK, fontsize=10.5, va="top")
    return figure, axes


def _plain(axes: Axes) -> None:
    draw_grid(axes)
    axes.tick_params(which="both", length=0, labelsize=8.5, labelcolor=INK)
    axes.minorticks_off()
