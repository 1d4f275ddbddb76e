"""One player's try at an incident: the program in the notebook's folder, a running clock, and one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from ..errors import FourRanksError
from ..puzzles.rules import whole
from .incident import RANKS, SPEED, Cause, Incident, Points

FOLDER = "incidents"  # in the notebook's folder


class AnswerError(FourRanksError):
    """An answer cannot be taken; if it could not be read, the clock runs on."""


class OnCall:
    """An incident whose clock runs from now on; a notebook shows what is known of it."""

    def __init__(self, incident: Incident, clock: Callable[[], float] = time.monotonic) -> None:
        self.incident = incident
        self.path = _handed_out(incident)
        self._clock, self._began = clock, clock()
        self._answered = False

    def answer(self, rank: int | str | Iterable[int], line: int, cause: str) -> Debriefing:
        """Say what is wrong, once; the debriefing has the points and the explanation.

        Args:
            rank: the rank on which the fault shows, a list of ranks, or "all".
            line: the number of the line that is wrong, as the program was handed out.
            cause: a letter of the list of causes.

        Raises:
            AnswerError: it is no answer, or a second one; the text says why.
        """
        if self._answered:
            again = f'incidents.start("{self.incident.name}")'
            raise AnswerError(f"You have answered already. {again} starts this incident again.")
        given = _read_ranks(rank), _read_line(line, self.incident), _read_cause(cause)
        seconds, self._answered = self._clock() - self._began, True
        return Debriefing(self.incident, self.incident.grade(*given, seconds), seconds)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        incident, path = self.incident, _relative(self.path)
        how = [
            f"The program is {path}. Open it beside this notebook, and run it in a %%ranks cell: %run {path}",
            f"The clock runs. A right answer within {incident.minutes} minutes earns {SPEED} more points.",
            'Then: job.answer(rank=0, line=1, cause="A"), with a rank, a list of ranks, or "all".',
        ]
        causes = [f"{cause.name}  {cause.value}" for cause in Cause]
        text = "\n".join([incident.name, incident.alarm, *how, *causes])
        listed = "".join(f"<div><b>{cause.name}</b> {escape(cause.value)}</div>" for cause in Cause)
        html = (
            '<div style="border-left: 4px solid #c62828; padding: 4px 12px">'
            f"<b>{escape(incident.name)}</b><br>{escape(incident.alarm)}</div>"
            + "".join(f'<div style="margin: 4px 0">{escape(line)}</div>' for line in how)
            + "<details><summary>Causes to choose from</summary>"
            + f'<div style="columns: 2">{listed}</div></details>'
        )
        return {"text/plain": text, "text/html": html}


@dataclass(frozen=True)
class Debriefing:
    """The points of an answer, and the fault as it was."""

    incident: Incident
    points: Points
    seconds: float

    @property
    def share(self) -> str:
        """One line of text to send to a friend, which gives nothing away."""
        parts = (self.points.ranks, self.points.line, self.points.cause, self.points.speed)
        squares = "".join("🟩" if part else "⬛" for part in parts)
        return (
            f"Four Ranks incidents · {self.incident.name} · {self.points.total}/{Points.MOST} in "
            f"{_minutes(self.seconds)} {squares}"
        )

    def __repr__(self) -> str:
        return "\n".join([*(f"{title}: {text}" for title, text in self._told()), self.share])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        colour = "#2e7d32" if self.points.total >= 10 else "#b8860b"
        told = "".join(
            f'<div style="margin: 4px 0"><b>{escape(title)}:</b> {_as_html(text)}</div>'
            for title, text in self._told()
        )
        html = (
            f'<div style="border-left: 4px solid {colour}; padding: 4px 12px">{told}</div>'
            f'<div style="user-select: all"><code>{escape(self.share)}</code></div>'
        )
        return {"text/plain": repr(self), "text/html": html}

    def _told(self) -> list[tuple[str, str]]:
        incident, points = self.incident, self.points
        rows = incident.source.splitlines()
        where = " or ".join(f"line {number}, `{rows[number - 1].strip()}`" for number in incident.lines)
        who = "all" if incident.ranks == RANKS else ", ".join(map(str, sorted(incident.ranks)))
        return [
            ("Points", f"{points.total} of {Points.MOST}, after {_minutes(self.seconds)}"),
            _judged(points.ranks, "Ranks", who),
            _judged(points.line, "Place", where),
            _judged(points.cause, "Cause", incident.cause.value),
            ("How it can be seen", incident.seen),
            ("What would have caught it", incident.prevented),
        ]


def _as_html(text: str) -> str:
    """Return a text as HTML, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def _judged(points: int, part: str, truth: str) -> tuple[str, str]:
    """Return a part of the answer with its mark, and what is true of it."""
    return (f"✓ {part}", truth) if points else (f"✕ {part}", f"the right answer is {truth}")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _relative(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _handed_out(incident: Incident) -> Path:
    """Put a fresh copy of the program into the notebook's folder or, if that cannot be written, elsewhere."""
    folder = Path.cwd() / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        (folder / incident.program).write_text(incident.source, encoding="utf-8")
    except OSError:
        folder = Path(mkdtemp(prefix="fourranks-"))
        (folder / incident.program).write_text(incident.source, encoding="utf-8")
    return folder / incident.program


def _read_ranks(rank: Any) -> set[int]:
    if isinstance(rank, str) and rank == "all":
        return set(RANKS)
    try:
        ranks = [whole(each) for each in rank]
    except TypeError:  # not several
        ranks = [whole(rank)]
    found = {each for each in ranks if each in RANKS}
    if not ranks or len(found) < len(set(ranks)):
        raise AnswerError(f'rank={rank!r} is no answer. Give a rank from 0 to 3, a list of them, or "all".')
    return found


def _read_line(line: Any, incident: Incident) -> int:
    count = len(incident.source.splitlines())
    number = whole(line)
    if number is None or not 1 <= number <= count:
        raise AnswerError(f"line={line!r} is no line of {incident.program}, which has lines 1 to {count}.")
    return number


def _read_cause(cause: Any) -> Cause:
    letter = cause.strip().upper() if isinstance(cause, str) else ""
    if letter not in Cause.__members__:
        first, *_, last = Cause.__members__
        raise AnswerError(f"cause={cause!r} is no cause. Give a letter from {first} to {last}.")
    return Cause[letter]
