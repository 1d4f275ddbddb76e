"""A board: its task, the fewest ticks or rounds that it takes, and the score of an attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from . import collective, collective_drawing, pipeline, pipeline_drawing
from .records import BROKEN, LEGAL, PAR, BoardRecord, records_in
from .rules import RuleBroken
from .svg import FAULT, FINE, Drawing

SQUARES = {BROKEN: "⬛", LEGAL: "🟨", PAR: "🟩"}
_MOST_SQUARES = 6  # on the line to share


@dataclass(frozen=True)
class Judged:
    """A board's answer to some moves: a score, or else the mistake; and a drawing of them."""

    drawing: Drawing
    score: int | None = None
    fault: str = ""


@dataclass(frozen=True)
class Puzzle(ABC):
    """One puzzle.

    Attributes:
        name: its title; records are kept under it.
        task: in a few sentences.
        unit: of a score.
        par: the lowest score that there is.
        proof: why there is no lower one; it gives the idea away, so it is told at par only.
    """

    name: str
    task: str
    unit: str
    par: int
    proof: str

    @abstractmethod
    def opening(self) -> Drawing:
        """Draw the board before the first move."""

    @abstractmethod
    def judge(self, moves: Any) -> Judged:
        """Try moves; a player may have given anything."""

    def mark(self, score: int | None) -> str:
        """Return the letter of an attempt with this score."""
        if score is None:
            return BROKEN
        return PAR if score <= self.par else LEGAL

    def play(self, moves: Any) -> Attempt:
        """Try moves, draw what comes of them, and keep the record in the notebook's folder."""
        judged = self.judge(moves)
        record, note = records_in(Path.cwd()).add(self.name, self.mark(judged.score), judged.score)
        return Attempt(self, judged, record, note)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        best = records_in(Path.cwd()).of(self.name).best
        yours = "" if best is None else f" · your record: {best}"
        head = f"<b>{escape(self.name)}</b> · par {self.par} {self.unit}{yours}"
        html = f"<div>{head}<br>{escape(self.task)}</div>{self.opening().html()}"
        return {"text/html": html, "text/plain": f"{self.name} (par {self.par} {self.unit}): {self.task}"}


@dataclass(frozen=True)
class Attempt:
    """The result of a player's moves; a notebook shows it under the cell.

    Attributes:
        score: None if a rule was broken.
        verdict: one sentence or two.
        share: one line of text to send to a friend, which gives nothing away.
    """

    board: Puzzle
    judged: Judged
    record: BoardRecord
    note: str = ""

    @property
    def score(self) -> int | None:
        return self.judged.score

    @property
    def verdict(self) -> str:
        score, par, unit = self.judged.score, self.board.par, self.board.unit
        if score is None:
            return self.judged.fault
        if score > par:
            return f"{score} {unit}: no rule is broken, and par is {par}."
        return f"{score} {unit}: that is par, and no lower score is possible. {self.board.proof}"

    @property
    def share(self) -> str:
        squares = "".join(SQUARES[mark] for mark in self.record.marks[-_MOST_SQUARES:])
        more = self.record.attempts - _MOST_SQUARES
        earlier = f"+{more} " if more > 0 else ""
        best = self.record.best
        score = "–" if best is None else str(best)
        return (
            f"Four Ranks · {self.board.name} · {score}/{self.board.par} {self.board.unit} {earlier}{squares}"
        )

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.verdict, self.share, self.note)))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        colour, sign = self._look()
        note = f"<div>{escape(self.note)}</div>" if self.note else ""
        html = (
            f'<div style="border-left: 4px solid {colour}; padding: 2px 10px; margin: 4px 0">'
            f"<b>{sign}</b> {escape(self.verdict)}</div>{self.judged.drawing.html()}"
            f'<div style="user-select: all"><code>{escape(self.share)}</code></div>{note}'
        )
        return {"text/html": html, "text/plain": repr(self)}

    def _look(self) -> tuple[str, str]:
        if self.judged.score is None:
            return FAULT, "Not yet."
        return (FINE, "Par!") if self.judged.score <= self.board.par else ("#b8860b", "It works.")


@dataclass(frozen=True)
class PipelinePuzzle(Puzzle):
    """A puzzle about schedules; its score is the ticks of a step."""

    shape: pipeline.Pipeline

    def opening(self) -> Drawing:
        """Draw the empty schedule, with par."""
        return self._drawn(pipeline.Timetable([[] for _ in range(self.shape.ranks)]))

    def judge(self, moves: Any) -> Judged:
        """Simulate a schedule."""
        try:
            orders = pipeline.read_orders(moves, self.shape)
        except RuleBroken as broken:
            return Judged(self.opening(), fault=str(broken))
        run = pipeline.simulate(orders, self.shape)
        if run.fault is not None:
            return Judged(self._drawn(run), fault=run.fault.message)
        return Judged(self._drawn(run), run.ticks)

    def _drawn(self, run: pipeline.Timetable) -> Drawing:
        return pipeline_drawing.draw(self.shape, run, self.par)


@dataclass(frozen=True)
class CollectivePuzzle(Puzzle):
    """A puzzle about messages in rounds.

    Its score is the number of rounds or, if its unit is "parts", how many parts the busiest rank sends.
    """

    shape: collective.Exchange

    def opening(self) -> Drawing:
        """Draw what the ranks have at first, and what they must have in the end."""
        return self._drawn(collective.Course([], [list(self.shape.start)]))

    def judge(self, moves: Any) -> Judged:
        """Let the ranks send as planned."""
        try:
            rounds = collective.read_rounds(moves, self.shape)
        except RuleBroken as broken:
            return Judged(self.opening(), fault=str(broken))
        course = collective.play(rounds, self.shape)
        if course.slip is not None:
            return Judged(self._drawn(course), fault=course.slip.message)
        busiest = max(course.sent().values())
        return Judged(self._drawn(course), len(rounds) if self.unit == "rounds" else busiest)

    def _drawn(self, course: collective.Course) -> Drawing:
        return collective_drawing.draw(self.shape, course)


def score_table(boards: Mapping[str, Puzzle]) -> ScoreTable:
    """Return a player's records of all boards."""
    kept = records_in(Path.cwd())
    return ScoreTable([(board, kept.of(name)) for name, board in boards.items()])


@dataclass(frozen=True)
class ScoreTable:
    """All boards with par and the player's record, and a line to share."""

    rows: list[tuple[Puzzle, BoardRecord]]

    @property
    def share(self) -> str:
        marks = [self._mark(board, record) for board, record in self.rows]
        at_par = marks.count(SQUARES[PAR])
        return f"Four Ranks puzzles · {at_par} of {len(marks)} at par {''.join(marks)}"

    def _mark(self, board: Puzzle, record: BoardRecord) -> str:
        return "⬜" if record.best is None else SQUARES[board.mark(record.best)]

    def __repr__(self) -> str:
        rows = [
            f"{board.name}: {_best(record)} (par {board.par} {board.unit})" for board, record in self.rows
        ]
        return "\n".join([*rows, self.share])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        rows = "".join(
            f"<tr><td>{self._mark(board, record)} {escape(board.name)}</td><td>{board.par} {board.unit}</td>"
            f"<td>{_best(record)}</td><td>{record.attempts}</td></tr>"
            for board, record in self.rows
        )
        head = "<tr><th>board</th><th>par</th><th>your record</th><th>attempts</th></tr>"
        html = f"<table>{head}{rows}</table><code>{escape(self.share)}</code>"
        return {"text/html": html, "text/plain": repr(self)}


def _best(record: BoardRecord) -> str:
    return "–" if record.best is None else str(record.best)
