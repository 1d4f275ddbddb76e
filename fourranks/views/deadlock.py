"""The small figure above a `DeadlockError` in a notebook: where the ranks were last together, and are now.

One lane a rank, or for ranks that are in the same place; arrows lead from who waits to whom it waits for.
Drawn as SVG, on paper as all figures are, but without matplotlib, whose import takes longer than freeing
the ranks.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape

from ..naming import describe, name_ranks
from ..protocol.calls import Call
from ..scene import Scene
from ..watch import Deadlock
from .picture import in_words, page

_ROW, _TOP = 34, 30  # pixels
_LABEL_END, _BAR, _CHIP = 104, 128, 236
_TRACK = 14  # between two arrows that run side by side
_CHAR = 7.2  # pixels of a monospaced character at 12 px
_MAX_ROWS = 16
_PAPER, _INK, _LINE, _ARROW = "#ffffff", "#1f2933", "#9aa5b1", "#8a5a00"
_WAIT, _ENDED, _ON_CHIP = "#f3c56b", "#ccd4dc", "#000000"


class DeadlockFigure:
    """Displays as a picture in a notebook; the error's own text says the same in words."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __repr__(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        svg, width, height = _svg(self._scene)
        source = f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
        return page(source, _told(self._scene), width, height)


def _told(scene: Scene) -> str:
    """Name the waiting ranks, and those that they wait for."""
    told = []
    for ranks in _rows(scene):
        others = scene.deadlock.missing.get(ranks[0])
        waits = f", waiting for {name_ranks(sorted(others))}" if others else ""
        told.append(f"{name_ranks(ranks)}: {_chip(scene, ranks)[0]}{waits}")
    return in_words("who waits for whom", told)


def _svg(scene: Scene) -> tuple[str, int, int]:
    """Draw the picture; returns it, its width and its height."""
    deadlock = scene.deadlock
    rows = _rows(scene)
    hidden, rows = rows[_MAX_ROWS:], rows[:_MAX_ROWS]
    chips = [_chip(scene, ranks) for ranks in rows]
    ends = [_CHIP + _chip_width(text) for text, _ in chips]
    arrows = _arrows(deadlock, rows)
    tracks = _tracks(arrows)
    caption = _last_together(scene)
    width = max(max(ends) + 24 + _TRACK * (1 + max(tracks, default=0)), _BAR + _CHAR * len(caption))
    height = _TOP + _ROW * len(rows) + (20 if hidden else 8)
    parts = [_lane(row, ranks) for row, ranks in enumerate(rows)]
    parts += _together(caption, len(rows), _last_common(scene.deadlock) is not None)
    parts += [_box(row, text, waits) for row, (text, waits) in enumerate(chips)]
    for (start, end), track in zip(arrows, tracks, strict=True):
        parts.append(_arrow((ends[start], start), (ends[end], end), max(ends) + _TRACK * (1 + track)))
    if hidden:
        left_out = name_ranks([rank for ranks in hidden for rank in ranks])
        parts.append(_text(_CHIP, height - 6, f"… and {left_out}", _INK))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="monospace" font-size="12"><rect width="100%" height="100%" rx="10" fill="{_PAPER}"/>'
        f"{_MARKER}{''.join(parts)}</svg>"
    )
    return svg, round(width), height


_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto">'
    f'<path d="M0 0L8 4L0 8z" fill="{_ARROW}"/></marker></defs>'
)


def _rows(scene: Scene) -> list[list[int]]:
    """Put ranks together that are in one call and wait for the same, or that have ended alike."""
    deadlock, calls = scene.deadlock, scene.calls
    together: dict[tuple[object, object], list[int]] = {}
    for rank, view in deadlock.views.items():
        call = calls.get(rank)
        place = (describe(call, 0, bool(deadlock.conflicts)), call.file, call.line) if call else view.ended
        together.setdefault((place, deadlock.missing.get(rank)), []).append(rank)
    return sorted(together.values())


def _chip(scene: Scene, ranks: list[int]) -> tuple[str, bool]:
    """Say what these ranks do now, and whether they wait."""
    deadlock, call = scene.deadlock, scene.calls.get(ranks[0])
    if call is None:
        return str(deadlock.views[ranks[0]].ended or "goes on"), False
    what = describe(call, len(deadlock.views), bool(deadlock.conflicts))
    return f"{what}, {scene.at(call.file, call.line)}", True


def _last_together(scene: Scene) -> str:
    """Name the last collective that all ranks of its group came to."""
    last = _last_common(scene.deadlock)
    return f"last together: {last.name}, {scene.at(last.file, last.line)}" if last else "not together yet"


def _together(caption: str, rows: int, met: bool) -> list[str]:
    """Draw the bar where all ranks were last together, if they ever were, and say what it was."""
    label = _text(_BAR - 6, 18, caption, _INK)
    if not met:
        return [label]
    bottom = _TOP + _ROW * rows - 12
    return [
        label,
        f'<line x1="{_BAR}" x2="{_BAR}" y1="{_TOP - 4}" y2="{bottom}" stroke="#009E73" stroke-width="5" '
        'stroke-linecap="round"/>',
    ]


def _last_common(deadlock: Deadlock) -> Call | None:
    """Return the latest collective that every rank has issued, before those it is stuck in."""
    progresses = [view.progress for view in deadlock.views.values()]
    stuck = {call.place_in_group for call in (deadlock.conflicts | deadlock.blocked).values()}
    for call in reversed(deadlock.views[next(iter(deadlock.blocked))].progress.recent):
        counts = [progress.collectives.get((call.group, call.ranks), 0) for progress in progresses]
        among_all = call.moves_data and not call.is_point_to_point and len(call.ranks) == len(progresses)
        if among_all and min(counts) > call.seq and call.place_in_group not in stuck:
            return call
    return None


def _arrows(deadlock: Deadlock, rows: list[list[int]]) -> list[tuple[int, int]]:
    """Lead from the row of each rank that waits to the rows of those that it waits for."""
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
    """Say how far to the right each arrow runs: those over the same rows must not cover each other."""
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
    """Draw an arrow from the right end of one row's chip to that of another, by way of `x`."""
    (x1, row1), (x2, row2) = start, end
    return (
        f'<path d="M{x1:.0f} {_middle(row1) + 5} H{x:.0f} V{_middle(row2) - 5} H{x2 + 3:.0f}" fill="none" '
        f'stroke="{_ARROW}" stroke-width="1.8" stroke-dasharray="5 3" marker-end="url(#tip)"/>'
    )


def _text(x: float, y: float, text: str, fill: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}">{escape(text)}</text>'
