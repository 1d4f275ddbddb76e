"""A timeline of the ranks: who computed, who communicated, and who stood still for whom.

Drawn from the calls of a `Trace` by `%%ranks --trace` and by lectures. It measures nothing itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..trace import Call
from .style import FAINT_INK, INK, PAPER, Figure, rank_colour, tint

_WIDTH = 9.0  # inches
_BAR = 0.6  # of a row's height
_SMALL_WORLD = 8  # up to here rows are high enough for a name above each
_LABEL_SIZE = 7.5  # points
_MAX_HATCHED = 400  # in one row; more lines than pixels cannot be seen, and take seconds to draw

# Kinds of spans, in the order of the legend: what they are called, how strong the rank's colour is, the hatch
# and the share of the bar's height.
_KINDS = {
    "computing": ("between calls", 0.16, None, 0.35),
    "in flight": ("call in flight, rank goes on", 0.42, None, 0.35),
    "waiting": ("blocked: another rank is not there yet", 0.22, "/////", 1.0),
    "moving": ("blocked: data on its way", 1.0, None, 1.0),
}


class _Span(NamedTuple):
    kind: str
    start: float
    end: float


def timeline(calls_by_rank: Sequence[Sequence[Call]], title: str = "") -> Figure:
    """Draws one row a rank, time from left to right.

    Args:
        calls_by_rank: for each rank its calls in the order it issued them (`Trace.calls`).
        title: a headline; by default what was recorded.
    """
    calls = [call for row in calls_by_rank for call in row]
    row_height = 0.44 if len(calls_by_rank) <= _SMALL_WORLD else 0.2
    figure = Figure(_WIDTH, 1.0 + row_height * len(calls_by_rank))
    axes = figure.add_axes(_frame(figure))
    _style_axes(axes, len(calls_by_rank), title or _headline(calls, len(calls_by_rank)))
    if not calls:
        axes.text(0.5, 0.5, "no communication recorded", transform=axes.transAxes, ha="center", va="center")
        return figure
    origin = min(call.start for call in calls)
    last = max(max(call.start, call.end or call.start) for call in calls)
    horizon = last + max(0.02 * (last - origin), 1e-6)
    axes.set_xlim(0, 1000 * (horizon - origin))
    arrivals = _arrivals(calls_by_rank)
    for rank, row in enumerate(calls_by_rank):
        spans = list(_spans(rank, row, origin, horizon, arrivals))
        _draw_spans(axes, rank, spans, origin)
    _label_calls(axes, calls_by_rank, origin, horizon)
    _legend(figure)
    return figure


def _frame(figure: Figure) -> tuple[float, float, float, float]:
    width, height = figure.get_size_inches()
    return (0.75 / width, 0.65 / height, 1 - 1.1 / width, 1 - 1.0 / height)


def _headline(calls: Sequence[Call], world_size: int) -> str:
    ops = list(dict.fromkeys(call.op for call in calls))
    return f"{', '.join(ops[:4])}{' …' if len(ops) > 4 else ''} on {world_size} ranks" if ops else ""


def _style_axes(axes: Axes, world_size: int, title: str) -> None:
    axes.set_facecolor(PAPER)
    axes.set_ylim(world_size - 0.45, -0.8 if world_size <= _SMALL_WORLD else -1.0)
    axes.set_yticks(range(world_size), [f"rank {rank}" for rank in range(world_size)])
    for label in axes.get_yticklabels():
        label.set(color=INK, fontsize=9 if world_size <= _SMALL_WORLD else 7.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=FAINT_INK, labelsize=8.5)
    axes.text(1.003, 0, "ms", transform=axes.transAxes, color=FAINT_INK, fontsize=8.5, va="center")
    axes.set_title(title, loc="left", color=INK, fontsize=10.5, pad=6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT_INK)


def _meeting(rank: int, call: Call) -> tuple:
    """What the calls of all ranks that belong to one operation have in common."""
    if not call.is_point_to_point:
        return (call.group, call.seq, call.op)
    ends = (rank, call.peer) if call.op == "send" else (call.peer, rank)
    return (call.group, call.seq, call.tag, *ends)


def _arrivals(calls_by_rank: Sequence[Sequence[Call]]) -> dict[tuple, float]:
    """For each operation the moment at which its last rank had come; none for one that lacked a rank."""
    starts: dict[tuple, list[float]] = defaultdict(list)
    needed: dict[tuple, int] = {}
    for rank, row in enumerate(calls_by_rank):
        for call in row:
            meeting = _meeting(rank, call)
            starts[meeting].append(call.start)
            needed[meeting] = 2 if call.is_point_to_point else len(call.ranks)
    return {meeting: max(times) for meeting, times in starts.items() if len(times) == needed[meeting]}


def _spans(
    rank: int, row: Sequence[Call], origin: float, horizon: float, arrivals: dict[tuple, float]
) -> Iterator[_Span]:
    """What one rank did from `origin` to the end of its last call."""
    blocked_until = origin
    for call in sorted(row, key=lambda call: call.end or horizon):
        end = call.end or horizon  # never waited for: in flight for all we know
        blocked = max(call.start, end - call.waited)
        arrived = min(max(arrivals.get(_meeting(rank, call), end), blocked), end)
        yield _Span("computing", blocked_until, blocked)
        yield _Span("in flight", call.start, blocked)
        yield _Span("waiting", blocked, arrived)
        yield _Span("moving", arrived, end)
        blocked_until = max(blocked_until, call.end or blocked_until)


def _draw_spans(axes: Axes, rank: int, spans: Sequence[_Span], origin: float) -> None:
    colour = rank_colour(rank)
    for kind, (_, strength, hatch, share) in _KINDS.items():
        extents = [
            (1000 * (span.start - origin), 1000 * (span.end - span.start))
            for span in spans
            if span.kind == kind and span.end > span.start
        ]
        height = _BAR * share
        hatch = hatch if len(extents) <= _MAX_HATCHED else None
        axes.broken_barh(
            extents,
            (rank - height / 2, height),
            facecolor=tint(colour, strength),
            hatch=hatch,
            edgecolor=tint(colour, 0.75) if hatch else PAPER,
            linewidth=0 if hatch else 0.4,
        )


def _label_calls(axes: Axes, calls_by_rank: Sequence[Sequence[Call]], origin: float, horizon: float) -> None:
    """Names each operation above the first rank that called it, as far as there is room."""
    right_edge = 1000 * (horizon - origin)
    milliseconds_per_point = right_edge / (72 * axes.figure.get_figwidth() * axes.get_position().width)
    rows = calls_by_rank if len(calls_by_rank) <= _SMALL_WORLD else calls_by_rank[:1]
    named = set()
    for rank, row in enumerate(rows):
        free = 0.0
        for call in row:
            start, end = (1000 * (moment - origin) for moment in (call.start, call.end or horizon))
            left = max(start, free)
            right = left + (0.62 * len(call.op) + 0.5) * _LABEL_SIZE * milliseconds_per_point
            fits = right <= 1.05 * right_edge if left == start else right <= end
            operation = (_meeting(rank, call), call.op)
            if fits and operation not in named:
                axes.text(left, rank - 0.55 * _BAR, call.op, fontsize=_LABEL_SIZE, color=INK, va="bottom")
                free = right
            named.add(operation)


def _legend(figure: Figure) -> None:
    handles = []
    for label, strength, hatch, _ in _KINDS.values():
        fill, edge = tint(FAINT_INK, strength), tint(FAINT_INK, 0.75)
        handles.append(Patch(facecolor=fill, edgecolor=edge, hatch=hatch, linewidth=0, label=label))
    style = {"frameon": False, "fontsize": 8, "labelcolor": FAINT_INK}
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), **style)
