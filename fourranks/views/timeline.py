"""A timeline of the ranks: when each computed, communicated, and waited for another.

Drawn from a `Trace` by `%%ranks --trace` and by lectures. It measures nothing itself: `spans` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..trace import Trace
from ..trace.operations import MESSAGE, Operation
from ..trace.spans import COMPUTING, MOVING, WAITING, RankSpans, Span, bubble
from . import rank_rows, units
from .picture import in_words
from .style import FAINT_INK, INK, PAPER, Figure, rank_colour, tint

_WIDTH = 9.0  # inches
_BAR = 0.62  # of a row's height
_SMALL_WORLD = 8  # up to here rows are high enough for a name above each
_LABEL_SIZE = 7.5  # points
_MAX_HATCHED = 400  # in one row; more lines than pixels cannot be seen, and take seconds to draw


class _SpanLook(NamedTuple):
    label: str  # in the legend
    strength: float  # of the rank's colour
    hatch: str | None = None
    height: float = 1.0  # share of the bar's
    edge: float = 0.0  # strength of the outline and the hatch


_LOOKS = {  # in the order in which they are drawn and explained
    COMPUTING: _SpanLook("computing", 0.22),
    "in flight": _SpanLook("call in flight meanwhile", 0.7, height=0.28),
    WAITING: _SpanLook("blocked: another rank is not there yet", 0.0, hatch="/////", edge=0.6),
    MOVING: _SpanLook("blocked: data on its way", 1.0),
}


def timeline(trace: Trace, title: str = "", computing: str = "") -> Figure:
    """Draw one row a rank, time from left to right, and the bubble: the share of time spent on waiting.

    Args:
        trace: the recorded one.
        title: a headline; by default what was recorded.
        computing: the legend's name for the time in which a rank neither communicates nor waits, for instance
            where it only pretends to compute.
    """
    ranks, operations = trace.spans(), trace.operations
    row_height = 0.44 if len(ranks) <= _SMALL_WORLD else 0.2
    figure = Figure(_WIDTH, 1.0 + row_height * len(ranks))
    axes = figure.add_axes(_frame(figure))
    title = title or _headline(operations, len(ranks))
    _style_axes(axes, len(ranks), title)
    if not operations:
        figure.alt = in_words(title, ["no communication recorded"])
        axes.text(0.5, 0.5, "no communication recorded", transform=axes.transAxes, ha="center", va="center")
        return figure
    scale = _scale(axes, trace.begun, max(span.end for rank in ranks for span in rank.spans))
    for rank in ranks:
        _draw_spans(axes, rank, scale)
    _label_calls(axes, operations, scale, figure.get_figwidth())
    shares = {rank.rank: rank.bubble for rank in ranks if rank.spans}
    rank_rows.write_bubbles(axes, shares, bubble(ranks), 8.5 if len(ranks) <= _SMALL_WORLD else 7.5)
    _draw_legend(figure, computing)
    if trace.clock_uncertainty:
        _write_uncertainty(axes, trace.clock_uncertainty)
    waits = [f"rank {rank} waits {share:.0%} of the time" for rank, share in shares.items()]
    figure.alt = in_words(
        title, [units.time(scale.length * scale.unit), f"bubble {bubble(ranks):.0%}", *waits]
    )
    return figure


def _frame(figure: Figure) -> tuple[float, float, float, float]:
    width, height = figure.get_size_inches()
    return (0.75 / width, 0.65 / height, 1 - 1.5 / width, 1 - 1.0 / height)


def _headline(operations: Sequence[Operation], world_size: int) -> str:
    ops = list(dict.fromkeys(operation.op for operation in operations))
    return f"{', '.join(ops[:4])}{' …' if len(ops) > 4 else ''} on {world_size} ranks" if ops else ""


def _style_axes(axes: Axes, world_size: int, title: str) -> None:
    rank_rows.style_axes(axes, title)
    axes.set_ylim(world_size - 0.45, -0.8 if world_size <= _SMALL_WORLD else -1.0)
    axes.set_yticks(range(world_size), [f"rank {rank}" for rank in range(world_size)])
    for label in axes.get_yticklabels():
        label.set(color=INK, fontsize=9 if world_size <= _SMALL_WORLD else 7.5)


class _Scale(NamedTuple):
    """The way from the clock of calls to the axis."""

    origin: float
    unit: float  # in seconds
    length: float  # of the axis, in units

    def place(self, moment: float) -> float:
        return (moment - self.origin) / self.unit


def _scale(axes: Axes, begun: float, over: float) -> _Scale:
    """Set the limits and the unit of the time axis."""
    unit, name = units.time_unit(over - begun)
    length = (over - begun) / unit
    axes.set_xlim(0, length)
    rank_rows.write_unit(axes, name)
    return _Scale(begun, unit, length)


def _draw_spans(axes: Axes, rank: RankSpans, scale: _Scale) -> None:
    for kind, look in _LOOKS.items():
        spans = rank.in_flight if kind == "in flight" else [s for s in rank.spans if s.kind == kind]
        extents = _extents(spans, scale)
        height = _BAR * look.height
        hatch = look.hatch if len(extents) <= _MAX_HATCHED else None
        colour = rank_colour(rank.rank)
        axes.broken_barh(
            extents,
            (rank.rank + _BAR / 2 - height, height),
            facecolor=tint(colour, look.strength if hatch or not look.hatch else look.edge / 2),
            hatch=hatch,
            edgecolor=tint(colour, look.edge) if look.hatch else PAPER,
            linewidth=0 if look.hatch or kind == COMPUTING else 0.4,
        )


def _extents(spans: Iterable[Span], scale: _Scale) -> list[tuple[float, float]]:
    return [(scale.place(span.start), (span.end - span.start) / scale.unit) for span in spans]


def _label_calls(axes: Axes, operations: Sequence[Operation], scale: _Scale, inches: float) -> None:
    """Name each operation above the first rank that came to it, as far as there is room."""
    world_size = len(axes.get_yticks())
    width = scale.length / (72 * inches * axes.get_position().width)  # of a point
    free = dict.fromkeys(range(world_size if world_size <= _SMALL_WORLD else 1), 0.0)
    names = [each for operation in operations for each in _names(operation)]
    for rank, name, start, end in sorted(names, key=lambda each: each[2]):  # no rank has all calls in order
        if rank not in free:
            continue
        left = max(scale.place(start), free[rank])
        right = left + (0.62 * len(name) + 0.5) * _LABEL_SIZE * width
        bound = 1.05 * scale.length if left == scale.place(start) else scale.place(end)
        if right <= bound:
            axes.text(left, rank - 0.54 * _BAR, name, fontsize=_LABEL_SIZE, color=INK, va="bottom")
            free[rank] = right


def _names(operation: Operation) -> list[tuple[int, str, float, float]]:
    """Return the ranks above which an operation is named, the name, and the extent of their calls."""
    calls = sorted(operation.calls.items())
    if operation.op != MESSAGE:
        calls = calls[:1]
    return [(rank, call.op, call.start, call.finished or call.start) for rank, call in calls]


def _write_uncertainty(axes: Axes, seconds: float) -> None:
    """Write below the time axis how well the clocks of the ranks' nodes are known against each other."""
    unit, name = units.time_unit(seconds)
    text = f"clocks of the nodes: ± {seconds / unit:.2g} {name}"
    axes.text(
        1.075, -0.16, text, transform=axes.transAxes, fontsize=7.5, color=FAINT_INK, ha="right", va="top"
    )


def _draw_legend(figure: Figure, computing: str) -> None:
    handles = []
    for kind, look in _LOOKS.items():
        fill, edge = tint(FAINT_INK, look.strength), tint(FAINT_INK, look.edge)
        label = computing if computing and kind == COMPUTING else look.label
        handles.append(Patch(facecolor=fill, edgecolor=edge, hatch=look.hatch, linewidth=0, label=label))
    rank_rows.draw_legend(figure, handles)
