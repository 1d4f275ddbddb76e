"""An algorithm round by round: its messages, and each rank's holdings before and after.

`DrawableTrace.steps` and `%%ranks --steps` call it. The figure has all rounds; where scripts run, a slider
goes through them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from matplotlib.axes import Axes

from ..protocol.looks import MOST_VALUES
from ..trace import Trace
from .cells import (
    LABELS,
    PAGE,
    Grid,
    Size,
    columns,
    draw_arrow,
    draw_cells,
    name_ranks,
    outline,
    sheet,
    write,
)
from .picture import in_words
from .player import Player
from .rounds import Message, Round, rounds
from .style import FAINT_INK, SMALLEST_TEXT, Figure, Keywords, rank_colour, tint

_TOP = 0.36  # inches for the title
_HEAD = 0.42  # inches above each strip, for the rounds' names
_FOOT = 0.12
_CELL = Size(0.34, 0.3)
_LANE = 0.9  # inches between two grids, for the arrows
_ROW = 0.42  # inches a rank where there are no cells
_SCALES = (1.0, 0.85, 0.7, 0.58, 0.48)  # the first at which all rounds fit on the page is taken
_CLOSE_UP = 1.4
_MOST_FRAMES = 32  # of the slider; of more rounds it has the first and the last, which are soon drawn
_MOST_CELLS = 12_000
_MOST_TOLD = 8  # messages of a round


def steps(trace: Trace, title: str = "") -> Player:
    """Draw every recorded message as an arrow from its sender, in the sender's colour, round after round.

    A message belongs to the round after the latest one that its sender or its receiver had finished before.
    If the trace has the values of a variable, they stand between the arrows, in the colours of the ranks that
    they came from; those that a message takes along have a frame.

    Args:
        trace: of the cells that ran the algorithm; only sends and receives are drawn.
        title: the algorithm and the number of ranks; by default the variable.
    """
    found = rounds(trace)
    title = title or f"{trace.tracing.values or 'messages'} on {trace.world_size} ranks, round by round"
    if not found:
        return Player(_nothing(title), [])
    overview = _overview(found, trace.world_size, title + _missing(trace, found))
    if len(found) == 1:
        return Player(overview, [])
    cells = 2 * trace.world_size * _places(found)
    shown = _ends(found, min(_MOST_FRAMES, max(2, _MOST_CELLS // max(1, cells))))
    names = [f"round {one.number} of {len(found)}" for one in shown]
    figures = [_close_up(one, trace.world_size, title) for one in shown]
    return Player(overview, list(zip(names, figures, strict=True)))


def _nothing(title: str) -> Figure:
    figure, axes = sheet(6.5, 0.9, title)
    text = "The ranks sent no messages to each other. Data that collectives move is not shown."
    write(axes, 0.12, 0.6, text, color=FAINT_INK, ha="left")
    figure.alt = in_words(title, [text])
    return figure


def _missing(trace: Trace, found: Sequence[Round]) -> str:
    """Say why the values that were asked for are not there, if they are not."""
    name = trace.tracing.values
    if not name or _places(found):
        return ""
    looks = [call.look for row in trace.calls for call in row]
    if any(look is not None and look.values is None for look in looks):
        return f" ({name} has more than {MOST_VALUES} values a rank: too many to draw)"
    return f" ({name} holds no numbers)"


def _places(found: Sequence[Round]) -> int:
    return max(columns(held) for one in found for held in (one.before, one.after))


class _Layout(NamedTuple):
    """Lengths in inches, and how many rounds stand side by side in one strip."""

    cell: Size
    block: float  # width of the cells of one moment
    lane: float
    world_size: int

    @property
    def height(self) -> float:
        return _HEAD + self.world_size * self.cell.height + _FOOT

    @property
    def rounds(self) -> int:
        """How many have room side by side."""
        return max(1, int((PAGE[0] - LABELS - self.block) / (self.block + self.lane)))

    def width(self, rounds: int) -> float:
        return LABELS + self.block + rounds * (self.block + self.lane) + 0.15


def _layout(found: Sequence[Round], world_size: int, scale: float) -> _Layout:
    places, room = _places(found), PAGE[0] - LABELS
    if not places:
        row = Size(0, min(_ROW, (PAGE[1] - _TOP - _HEAD - _FOOT) / world_size))
        return _Layout(row, 0, max(0.25, min(1.1, room / len(found))), world_size)
    lane = _LANE * max(0.6, scale)
    widest = (room - lane) / (2 * places)
    width = min(widest, _CELL.width * scale * (1.3 if places == 1 else 1))
    return _Layout(Size(width, _CELL.height * scale), places * width, lane, world_size)


def _overview(found: Sequence[Round], world_size: int, title: str) -> Figure:
    """Draw all rounds in as many strips as they need, without the middle ones where the page is too small."""
    for scale in _SCALES:
        layout = _layout(found, world_size, scale)
        strips = ceil(len(found) / layout.rounds)
        room = int((PAGE[1] - _TOP) / layout.height)
        if strips <= room:
            break
    strips = min(strips, max(2, room))
    side_by_side = min(layout.rounds, ceil(len(found) / strips))
    shown = _ends(found, strips * side_by_side)
    figure, axes = sheet(layout.width(side_by_side), _TOP + strips * layout.height, title)
    for strip in range(strips):
        some = shown[strip * side_by_side : (strip + 1) * side_by_side]
        _draw_strip(axes, _TOP + strip * layout.height, layout, some)
    figure.alt = in_words(title, [f"round {one.number}, {_told(one)}" for one in found])
    return figure


def _ends(found: Sequence[Round], room: int) -> list[Round]:
    """Return all of them or, where there is no room, the first and the last."""
    if len(found) <= room:
        return list(found)
    return [*found[: room - room // 2], *found[len(found) - room // 2 :]]


def _close_up(one: Round, world_size: int, title: str) -> Figure:
    scale = min(_CLOSE_UP, (PAGE[1] - _TOP - _HEAD) / (world_size * _CELL.height))
    layout = _layout([one], world_size, scale)
    layout = layout._replace(lane=min(2.2, PAGE[0] - LABELS - 2 * layout.block))
    figure, axes = sheet(layout.width(1), _TOP + layout.height, title)
    _draw_strip(axes, _TOP, layout, [one])
    figure.alt = f"round {one.number}: {_told(one)}"
    return figure


def _told(one: Round) -> str:
    """Put a round's messages into words."""
    sent = [f"rank {src} to {dst}" for src, dst, _ in sorted(one.messages, key=lambda message: message[:2])]
    more = [f"{len(sent) - _MOST_TOLD} more"] if len(sent) > _MOST_TOLD else []
    return f"{_traffic(one.messages)}, {', '.join([*sent[:_MOST_TOLD], *more])}"


def _draw_strip(axes: Axes, top: float, layout: _Layout, some: Sequence[Round]) -> None:
    grid = Grid(LABELS, top + _HEAD, layout.cell)
    name_ranks(axes, grid, layout.world_size)
    draw_cells(axes, grid, some[0].before)
    for one in some:
        outline(axes, grid, sorted(_sent(one.messages)))
        x = grid.x + layout.block
        _draw_lane(axes, x, grid, layout, one)
        grid = grid._replace(x=x + layout.lane)
        draw_cells(axes, grid, one.after)


def _sent(messages: list[Message]) -> set[tuple[int, int]]:
    return {(message.src, place) for message in messages for place in message.places(message.src)}


def _draw_lane(axes: Axes, x: float, grid: Grid, layout: _Layout, one: Round) -> None:
    """Draw the round's name, and an arrow for each message, between `x` and the next grid."""
    _name_round(axes, x + layout.lane / 2, grid.y, layout.lane, one)
    if not layout.block:
        for rank in range(layout.world_size):
            line: Keywords = {"color": tint(rank_colour(rank), 0.35), "lw": 1.2, "zorder": 0}
            axes.plot((x, x + layout.lane), (grid.middle(rank),) * 2, **line)
    margin = min(0.1, 0.14 * layout.lane)
    for message in one.messages:
        start = x + margin, grid.middle(message.src)
        end = x + layout.lane - margin, grid.middle(message.dst)
        draw_arrow(axes, start, end, rank_colour(message.src))


def _name_round(axes: Axes, x: float, y: float, lane: float, one: Round) -> None:
    if lane < 0.5:  # room for a number here and there
        if one.number == 1 or one.number % 5 == 0:
            write(axes, x, y - 0.08, str(one.number), 7.5, FAINT_INK, va="bottom")
        return
    write(axes, x, y - 0.19, f"round {one.number}", max(SMALLEST_TEXT, min(9, 10 * lane)), va="bottom")
    if (size := min(7.5, 8.5 * lane)) >= SMALLEST_TEXT:
        write(axes, x, y - 0.07, _traffic(one.messages), size, FAINT_INK, va="bottom")


def _traffic(messages: list[Message]) -> str:
    sizes = [message.nbytes for message in messages]
    if len(set(sizes)) == 1:
        return f"{len(sizes)} × {sizes[0]:,} B"
    return f"{len(sizes)} messages, {sum(sizes):,} B"
