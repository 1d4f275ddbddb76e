"""A collective as a drawing: a column a round, a row a rank, and in each place what the rank holds."""

from __future__ import annotations

from math import ceil

from ..views.palette import BLANK, FAINT_INK, INK, PAPER, ink_on, rank_colour, tint
from .collective import Course, Exchange, Held, Send, Sum
from .svg import FAULT, FINE, Drawing

_LEFT, _TOP = 62, 44
_CELL = 22  # height of a part, and its least width
_SHARE = 5  # least width of one contribution
_ARROWS = 76  # between columns
_GAP = 18  # between rows
_LONGEST_LABEL = 6  # characters of a message's parts


def draw(shape: Exchange, course: Course) -> Drawing:
    """Draw the rounds until a slip or the end, and the goal."""
    return _RoundsDrawing(shape, course).drawing


class _RoundsDrawing:
    def __init__(self, shape: Exchange, course: Course) -> None:
        self.shape, self.course = shape, course
        self.contributors = sorted({rank for row in shape.start for held in row.values() for rank in held})
        self.sums = any(len(wanted) > 1 for row in shape.goal for wanted in row.values())
        self.cell = max(_CELL, _SHARE * len(self.contributors)) if self.sums else _CELL
        self.across = len(shape.parts) if len(shape.parts) <= 8 else ceil(len(shape.parts) ** 0.5)
        self.down = ceil(len(shape.parts) / self.across)
        self.block = self.across * (self.cell + 2) - 2
        self.row = self.down * (_CELL + 2) + _GAP
        self.rounds = len(course.rounds)
        width = self.x(self.rounds) + self.block + 40 + self.block + 24
        height = _TOP + self.row * shape.ranks + 28
        self.drawing = Drawing(max(width, 520), height, _words(course))
        self._draw_nodes()
        self._draw_columns()
        self._draw_goal()
        self._draw_legend()

    def x(self, column: int) -> float:
        return _LEFT + column * (self.block + _ARROWS)

    def y(self, rank: int) -> float:
        return _TOP + rank * self.row

    def middle(self, rank: int) -> float:
        return self.y(rank) + self.down * (_CELL + 2) / 2

    def _draw_nodes(self) -> None:
        for node in sorted(set(self.shape.nodes)):
            members = [rank for rank, of in enumerate(self.shape.nodes) if of == node]
            top = self.y(members[0]) - _GAP / 2 + 1
            height = len(members) * self.row - 2
            self.drawing.box(
                6, top, self.drawing.width - 12, height, edge=tint(FAINT_INK, 0.5), dashed=True, round_by=6
            )

    def _draw_columns(self) -> None:
        for rank in range(self.shape.ranks):
            self.drawing.text(_LEFT - 10, self.middle(rank), f"rank {rank}", anchor="end")
        for column in range(self.rounds + 1):
            title = f"round {column}" if column else "start"
            self._draw_heading(self.x(column), title)
            for rank in range(self.shape.ranks):
                self._draw_block(column, rank)
        for number, sends in enumerate(self.course.rounds):
            for send in sends:
                self._draw_send(number, send)

    def _draw_heading(self, left: float, title: str) -> None:
        """Write a column's title, and the names of its parts if they are in one row."""
        self.drawing.text(left + self.block / 2, 13, title, FAINT_INK, size=11)
        for place, part in enumerate(self.shape.parts if 1 < len(self.shape.parts) == self.across else ()):
            x, _ = self._place(left, 0, place)
            self.drawing.text(x + self.cell / 2, _TOP - 11, part, INK, size=10)

    def _draw_block(self, column: int, rank: int) -> None:
        """Draw a rank's holdings: new parts with an edge, parts missing at the end with a red one."""
        held = self.course.held
        now = held[column][rank] if column < len(held) else dict.fromkeys(self.shape.parts, frozenset[int]())
        before = held[column - 1][rank] if 0 < column < len(held) else now
        slip = self.course.slip
        is_end = slip is not None and slip.rank is not None and column == self.rounds
        lacking = self.shape.lacking(rank, now) if is_end else {}
        for place, part in enumerate(self.shape.parts):
            x, y = self._place(self.x(column), self.y(rank), place)
            self._draw_part(x, y, part, now[part])
            if part in lacking:
                self.drawing.box(x, y, self.cell, _CELL, edge=FAULT, thick=2, dashed=True)
            elif now[part] != before[part]:
                self.drawing.box(x, y, self.cell, _CELL, edge=INK, thick=1.3)

    def _place(self, left: float, top: float, place: int) -> tuple[float, float]:
        return left + place % self.across * (self.cell + 2), top + place // self.across * (_CELL + 2)

    def _draw_part(self, x: float, y: float, part: str, held: Sum, faint: bool = False) -> None:
        """Draw a part with a stripe for each contribution to its sum, or all in its owner's colour."""
        self.drawing.box(x, y, self.cell, _CELL, BLANK)
        strength = 0.45 if faint else 1
        if not self.sums:
            for colour in (tint(rank_colour(rank), strength) for rank in held):
                self.drawing.box(x, y, self.cell, _CELL, colour)
                if self.down > 1:
                    self.drawing.text(x + self.cell / 2, y + _CELL / 2, part, ink_on(colour), size=10)
            return
        width = self.cell / len(self.contributors)
        for place, rank in enumerate(self.contributors):
            if rank in held:
                colour = tint(rank_colour(rank), strength)
                self.drawing.box(x + place * width, y, width, _CELL, colour, round_by=0.5)

    def _draw_send(self, number: int, send: Send) -> None:
        slip = self.course.slip
        is_wrong = slip is not None and slip.send == send and slip.round == number
        colour = FAULT if is_wrong else rank_colour(send.src)
        begin = self.x(number) + self.block + 2, self.middle(send.src)
        end = self.x(number + 1) - 4, self.middle(send.dst)
        self.drawing.arrow(begin, end, colour, thick=2.6 if is_wrong else 1.8)
        label = " ".join(send.parts) if len(self.shape.parts) > 8 else "".join(send.parts)
        if len(label) > _LONGEST_LABEL:
            label = f"{len(send.parts)} parts"
        x, y = begin[0] + 4, begin[1] - 8
        self.drawing.box(x - 1, y - 6, 6.2 * len(label) + 3, 12, PAPER)
        self.drawing.text(x, y, label, FAULT if is_wrong else INK, size=10, anchor="start")
        if is_wrong:
            self.drawing.text(
                (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2, "✕", FAULT, size=18, bold=True
            )

    def _draw_goal(self) -> None:
        left = self.x(self.rounds) + self.block + 40
        self._draw_heading(left, "goal")
        for rank, wanted in enumerate(self.shape.goal):
            self._draw_goal_of(rank, left, wanted)
            if self.course.rounds and len(self.course.held) > self.rounds:
                is_fine = not self.shape.lacking(rank, self.course.held[-1][rank])
                mark, colour = ("✓", FINE) if is_fine else ("✕", FAULT)
                self.drawing.text(left - 18, self.middle(rank), mark, colour, size=14, bold=True)

    def _draw_goal_of(self, rank: int, left: float, wanted: Held) -> None:
        for place, part in enumerate(self.shape.parts):
            x, y = self._place(left, self.y(rank), place)
            if part in wanted:
                self._draw_part(x, y, part, wanted[part], faint=True)

    def _draw_legend(self) -> None:
        y = self.drawing.height - 14
        parts = (
            f"parts {self.shape.parts[0]} to {self.shape.parts[-1]}"
            if len(self.shape.parts) > 1
            else "the data"
        )
        told = (
            "; a stripe in a rank's colour is its contribution"
            if self.sums
            else "; colours are those of their first owners"
        )
        self.drawing.text(_LEFT, y, f"Squares: {parts}{told}.", FAINT_INK, size=11, anchor="start")


def _words(course: Course) -> str:
    rounds = [
        f"round {number}: "
        + ", ".join(f"rank {s.src} sends {' '.join(s.parts)} to rank {s.dst}" for s in sends)
        for number, sends in enumerate(course.rounds, 1)
    ]
    return "; ".join(
        [*(rounds or ["the start and the goal"]), *([course.slip.message] if course.slip and rounds else [])]
    )
