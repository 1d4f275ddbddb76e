"""A pipeline's schedule as a drawing: for each rank what it does when, and below that what it keeps."""

from __future__ import annotations

from ..views.palette import BLANK, FAINT_INK, LEGIBLE_TINT, ink_on, rank_colour, tint
from .pipeline import Fault, Pipeline, Task, TimedTask, Timetable, alive
from .svg import FAULT, FINE, Drawing

_LEFT, _TOP, _RIGHT = 62, 34, 26
_LANE = 24  # of a rank with one chunk
_HALF_LANE = 18  # of each of several chunks
_STRIP = 12  # of a rank's memory, below its lanes
_GAP = 12
_WIDEST, _NARROWEST = 24.0, 8.0  # pixels of a tick
_WIDTH = 760  # pixels that the ticks may take
_STRENGTHS = {"F": 0.2, "B": LEGIBLE_TINT, "W": 0.42}  # of the rank's colour, as in `figures.schedule`
_LEGEND = {"F": "forward", "B": "backward", "W": "gradients of weights"}


def draw(shape: Pipeline, run: Timetable, par: int) -> Drawing:
    """Draw what ranks did until a fault or the end, with par as a line."""
    return _ScheduleDrawing(shape, run, par).drawing


class _ScheduleDrawing:
    def __init__(self, shape: Pipeline, run: Timetable, par: int) -> None:
        self.shape, self.run = shape, run
        self.lane = _LANE if shape.chunks == 1 else _HALF_LANE
        self.row = self.lane * shape.chunks + _STRIP + _GAP
        self.length = 1 + max(run.ticks, par, run.fault.tick + 2 if run.fault else 0)
        self.tick = min(_WIDEST, max(_NARROWEST, _WIDTH / self.length))
        height = _TOP + self.row * shape.ranks + 52
        self.drawing = Drawing(max(_LEFT + self.length * self.tick + _RIGHT, 560), height, _words(shape, run))
        self._draw_frame(par)
        for rank, row in enumerate(run.rows):
            for slot in row:
                self._draw_slot(rank, slot)
            self._draw_memory(rank, row)
        if run.fault:
            self._draw_fault(run.fault)

    def x(self, tick: float) -> float:
        return _LEFT + tick * self.tick

    def y(self, rank: int, chunk: int = 0) -> float:
        return _TOP + rank * self.row + chunk * self.lane

    def _draw_frame(self, par: int) -> None:
        bottom = self.y(self.shape.ranks) - _GAP
        for rank in range(self.shape.ranks):
            middle = self.y(rank) + self.shape.chunks * self.lane / 2
            self.drawing.text(_LEFT - 8, middle, f"rank {rank}", anchor="end")
            self.drawing.box(
                _LEFT, self.y(rank), self.length * self.tick, self.lane * self.shape.chunks, BLANK
            )
        for tick in range(0, self.length, 5):
            self.drawing.line((self.x(tick), bottom), (self.x(tick), bottom + 4), FAINT_INK)
            self.drawing.text(self.x(tick), bottom + 12, str(tick), FAINT_INK, size=10)
        self.drawing.line((self.x(par), _TOP - 12), (self.x(par), bottom), FINE, thick=1.5, dashed=True)
        self.drawing.text(self.x(par), _TOP - 20, f"par {par}", FINE, size=11, bold=True)
        self._draw_legend(bottom + 32)

    def _draw_legend(self, y: float) -> None:
        x = float(_LEFT)
        for kind in self.shape.ticks:
            self.drawing.box(x, y - 6, 14, 12, tint(FAINT_INK, _STRENGTHS[kind]))
            self.drawing.text(x + 19, y, f"{kind} {_LEGEND[kind]}", FAINT_INK, size=11, anchor="start")
            x += 40 + 6.6 * len(_LEGEND[kind])
        self.drawing.box(x, y - 5, 4, 10, tint(FAINT_INK, 0.5))
        self.drawing.text(
            x + 10, y, "microbatches in memory, under each rank", FAINT_INK, size=11, anchor="start"
        )

    def _draw_slot(self, rank: int, slot: TimedTask) -> None:
        fill = tint(rank_colour(rank), _STRENGTHS[slot.task.kind])
        x, y = self.x(slot.start), self.y(rank, slot.task.chunk)
        width = (slot.end - slot.start) * self.tick
        self.drawing.box(x + 0.5, y + 1, width - 1, self.lane - 2, fill)
        size = min(11 if self.shape.chunks == 1 else 10, width)
        self.drawing.text(
            x + width / 2, y + self.lane / 2, str(slot.task.microbatch), ink_on(fill), size=size
        )

    def _draw_memory(self, rank: int, row: list[TimedTask]) -> None:
        """Draw, between tasks' starts, how many microbatches the rank keeps, as a share of what it can."""
        top = self.y(rank, self.shape.chunks) + 1
        most = self.shape.alive[rank]
        for place, slot in enumerate(row):
            count = len(alive(row[:place], self.shape)) + (slot.task.kind == "F")
            until = row[place + 1].start if place + 1 < len(row) else slot.end
            height = (_STRIP - 2) * count / most
            x, width = self.x(slot.start), (until - slot.start) * self.tick
            self.drawing.box(
                x, top + _STRIP - 2 - height, width, height, tint(rank_colour(rank), 0.5), round_by=0
            )
        self.drawing.line((_LEFT, top), (self.x(self.length), top), BLANK)
        self.drawing.text(_LEFT - 8, top + 4, f"≤ {most}", FAINT_INK, size=9, anchor="end")

    def _draw_fault(self, fault: Fault) -> None:
        x, y = self.x(fault.tick), self.y(fault.rank, fault.task.chunk)
        stage = self.shape.stage(fault.rank, fault.task.chunk)
        width = self.shape.length(fault.task, stage) * self.tick
        self.drawing.box(x, y, width, self.lane, edge=FAULT, thick=2, dashed=True)
        self.drawing.text(x + width / 2, y + self.lane / 2, "✕", FAULT, bold=True)
        self.drawing.text(x + width / 2, y - 7, fault.task.name(self.shape.chunks), FAULT, size=11, bold=True)


def _words(shape: Pipeline, run: Timetable) -> str:
    rows = [f"rank {rank}: {_names([slot.task for slot in row], shape)}" for rank, row in enumerate(run.rows)]
    return "; ".join([*rows, run.fault.message if run.fault else f"{run.ticks} ticks"])


def _names(tasks: list[Task], shape: Pipeline) -> str:
    return " ".join(task.name(shape.chunks) for task in tasks) or "nothing"
