"""The small figure above a `DeadlockError` in a notebook: where the ranks were last together, and are now.

One lane a rank, or for ranks that are in the same place; arrows lead from who waits to whom it waits for.
Drawn as SVG in colours that hold on light and dark pages, without matplotlib, whose import takes longer than
freeing the ranks.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape

from ..diagnosis import describe
from ..errors import DeadlockError, name_ranks
from ..trace import Call
from ..watch import Deadlock

_ROW, _TOP = 34, 30  # pixels
_LABEL_END, _BAR, _CHIP = 104, 128, 236
_TRACK = 14  # between two arrows that run side by side
_CHAR = 7.2  # pixels of a monospaced character at 12 px
_MAX_ROWS = 16
_INK, _LINE, _WAIT, _ENDED = "#7d8794", "#9aa5b1", "#E69F00", "#9aa5b1"
_ON_CHIP = "#1f2933"


class DeadlockFigure:
    """Displays as a picture in a notebook; the error's own text says the same in words."""

    def __init__(self, error: DeadlockError) -> None:
        self._error = error

    def __repr__(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        svg = b64encode(_svg(self._error).encode()).decode()
        return f'<img alt="who waits for whom" src="data:image/svg+xml;base64,{svg}">'


def _svg(error: DeadlockError) -> str:
    deadlock = error.deadlock
    rows = _rows(deadlock)
    hidden, rows = rows[_MAX_ROWS:], rows[:_MAX_ROWS]
    chips = [_chip(deadlock, ranks) for ranks in rows]
    ends = [_CHIP + _chip_width(text) for text, _ in chips]
    arrows = _arrows(deadlock, rows)
    tracks = _tracks(arrows)
    width = max(ends) + 24 + _TRACK * (1 + max(tracks, default=0))
    height = _TOP + _ROW * len(rows) + (20 if hidden else 8)
    parts = [_lane(row, ranks) for row, ranks in enumerate(rows)]
    parts += _together(deadlock, len(rows))
    parts += [_box(row, text, waits) for row, (text, waits) in enumerate(chips)]
    for (start, end), track in zip(arrows, tracks, strict=True):
        parts.append(_arrow((ends[start], start), (ends[end], end), max(ends) + _TRACK * (1 + track)))
    if hidden:
        left_out = name_ranks([rank for ranks in hidden for rank in ranks])
        parts.append(_text(_CHIP, height - 6, f"… and {left_out}", _INK))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="monospace" font-size="12">{_MARKER}{"".join(parts)}</svg>'
    )


_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto">'
    f'<path d="M0 0L8 4L0 8z" fill="{_WAIT}"/></marker></defs>'
)


def _rows(deadlock: Deadlock) -> list[list[int]]:
    """Ranks that are in the same place, together: in one call and waiting for the same, or ended alike."""
    calls = deadlock.conflicts | deadlock.blocked
    together: dict[tuple, list[int]] = {}
    for rank, view in deadlock.views.items():
        call = calls.get(rank)
        place = (describe(call, 0, in_detail=True), call.line) if call else view.ended
        together.setdefault((place, deadlock.missing.get(rank)), []).append(rank)
    return sorted(together.values())


def _chip(deadlock: Deadlock, ranks: list[int]) -> tuple[str, bool]:
    """What these ranks do now, and whether they wait."""
    call = (deadlock.conflicts | deadlock.blocked).get(ranks[0])
    if call is None:
        return deadlock.views[ranks[0]].ended or "goes on", False
    return f"{describe(call, len(deadlock.views), bool(deadlock.conflicts))}, line {call.line}", True


def _together(deadlock: Deadlock, rows: int) -> list[str]:
    """The last collective that all ranks of its group came to."""
    last = _last_common(deadlock)
    if last is None:
        return [_text(_BAR, 18, "not together yet", _INK)]
    bottom = _TOP + _ROW * rows - 12
    return [
        _text(_BAR - 6, 18, f"last together: {last.op}, line {last.line}", _INK),
        f'<line x1="{_BAR}" x2="{_BAR}" y1="{_TOP - 4}" y2="{bottom}" stroke="#009E73" stroke-width="5" '
        'stroke-linecap="round"/>',
    ]


def _last_common(deadlock: Deadlock) -> Call | None:
    """The latest collective that every rank of the world has issued, before those it is stuck in."""
    progresses = [view.progress for view in deadlock.views.values()]
    stuck = {call.place_in_group for call in (deadlock.conflicts | deadlock.blocked).values()}
    for call in reversed(deadlock.views[next(iter(deadlock.blocked))].progress.recent):
        counts = [progress.collectives.get((call.group, call.ranks), 0) for progress in progresses]
        among_all = call.moves_data and not call.is_point_to_point and len(call.ranks) == len(progresses)
        if among_all and min(counts) > call.seq and call.place_in_group not in stuck:
            return call
    return None


def _arrows(deadlock: Deadlock, rows: list[list[int]]) -> list[tuple[int, int]]:
    """From the row of who waits to the row of whom it waits for."""
    row_of = {rank: row for row, ranks in enumerate(rows) for rank in ranks}
    return sorted(
        {
            (row_of[rank], row_of[other])
            for rank, others in deadlock.missing.items()
            for other in others
            if rank in row_of and other in row_of and row_of[rank] != row_of[other]
        }
    )


def _tracks(arrows: list[tuple[int, int]]) -> list[int]:
    """For each arrow how far to the right it runs: arrows over the same rows must not cover each other."""
    taken: list[set[int]] = []
    tracks = []
    for start, end in arrows:
        rows = set(range(min(start, end), max(start, end)))
        track = next((i for i, others in enumerate(taken) if not others & rows), len(taken))
        if track == len(taken):
            taken.append(set())
        taken[track] |= rows
        tracks.append(track)
    return tracks


def _middle(row: int) -> float:
    return _TOP + _ROW * row + 10


def _lane(row: int, ranks: list[int]) -> str:
    y = _middle(row)
    return (
        _text(_LABEL_END, y + 4, name_ranks(ranks), _INK, "end")
        + f'<line x1="{_LABEL_END + 8}" x2="{_CHIP}" y1="{y}" y2="{y}" stroke="{_LINE}" stroke-width="1.5"/>'
    )


def _box(row: int, text: str, waits: bool) -> str:
    y, fill = _middle(row) - 12, _WAIT if waits else _ENDED
    return (
        f'<rect x="{_CHIP}" y="{y}" width="{_chip_width(text):.0f}" height="24" rx="6" fill="{fill}"/>'
        + _text(_CHIP + 10, y + 16, text, _ON_CHIP)
    )


def _chip_width(text: str) -> float:
    return 20 + _CHAR * len(text)


def _arrow(start: tuple[float, int], end: tuple[float, int], x: float) -> str:
    """From the right end of one row's chip to that of another, by way of `x`."""
    (x1, row1), (x2, row2) = start, end
    return (
        f'<path d="M{x1:.0f} {_middle(row1) + 5} H{x:.0f} V{_middle(row2) - 5} H{x2 + 3:.0f}" fill="none" '
        f'stroke="{_WAIT}" stroke-width="1.8" stroke-dasharray="5 3" marker-end="url(#tip)"/>'
    )


def _text(x: float, y: float, text: str, fill: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}">{escape(text)}</text>'
