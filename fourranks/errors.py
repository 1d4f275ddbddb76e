"""What can go wrong with a world of ranks, each error explaining itself.

    FourRanksError
    ├── RankError      the reader's code raised on some ranks
    ├── RankDied       a worker process ended
    ├── DeadlockError  ranks wait for something that cannot come
    ├── CellTimeout    a cell took longer than it was given
    └── StartError     a world could not be started

In a notebook an error shows its own text and no frames of this package.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any

from .cuda_errors import explain

MAX_WIDTH = 100  # characters of a line of an error's own text
MAX_TRACEBACKS = 4  # different tracebacks shown in full; the rest are counted

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def format_ranks(ranks: list[int] | tuple[int, ...]) -> str:
    """Ranks as people write them: `[0, 1, 2, 5]` becomes "0-2,5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def name_ranks(ranks: list[int] | tuple[int, ...]) -> str:
    """`[2]` becomes "rank 2", `[0, 1, 3]` becomes "ranks 0-1,3"."""
    return f"rank{'s' if len(ranks) != 1 else ''} {format_ranks(ranks)}"


def sentence_case(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def plain(text: str) -> str:
    """The text without terminal colours."""
    return _ANSI.sub("", text)


def _wrapped(text: str) -> str:
    """The text in lines that a notebook need not break: JupyterLab does so inside words."""
    return "\n".join(_wrapped_line(line) if len(line) > MAX_WIDTH else line for line in text.split("\n"))


def _wrapped_line(line: str) -> str:
    hanging = "    " if line.startswith(" ") else ""
    return textwrap.fill(
        line, MAX_WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


class FourRanksError(Exception):
    """Base of all errors of this package.

    Attributes:
        transcript: what the ranks had shown, if they ran a cell or a call (`transcript.Transcript`).
    """

    transcript: Any = None

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines in place of a traceback through our own frames."""
        return [f"\x1b[31m{type(self).__name__}\x1b[0m: {_wrapped(str(self))}"]


class StartError(FourRanksError):
    """A world could not be started; the message says why and what to do."""


class CellTimeout(FourRanksError):
    """A cell was stopped because it took longer than its timeout."""


class CellInterrupted(KeyboardInterrupt):
    """A cell was interrupted; the message says where the ranks were.

    Attributes:
        transcript: what the ranks had shown (`transcript.Transcript`).
    """

    transcript: Any = None

    def _render_traceback_(self) -> list[str]:
        return [f"\x1b[31mKeyboardInterrupt\x1b[0m: {self}"]


@dataclass(frozen=True)
class RemoteError:
    """An exception that was raised on a rank, as text."""

    name: str  # of the exception's class
    message: str
    traceback: str  # as IPython formats it, with the cell's own lines
    undefined: str = ""  # the name that a NameError misses


class RankError(FourRanksError):
    """The reader's code raised an exception on some ranks.

    Attributes:
        errors: the exception of each rank that raised one.
    """

    def __init__(self, errors: dict[int, RemoteError], note: str = "") -> None:
        self.errors = errors
        self.note = note
        super().__init__(errors, note)

    def __str__(self) -> str:
        return plain("\n".join(self._render_traceback_()))

    def _render_traceback_(self) -> list[str]:
        alike: dict[tuple[str, str], list[int]] = {}
        for rank, error in sorted(self.errors.items()):
            alike.setdefault((error.name, plain(error.traceback)), []).append(rank)
        lines = []
        for (name, _), ranks in list(alike.items())[:MAX_TRACEBACKS]:
            lines.append(f"\x1b[31m{sentence_case(name_ranks(ranks))} raised {name}\x1b[0m")
            lines.append(self.errors[ranks[0]].traceback)
            if meaning := explain(self.errors[ranks[0]].message):
                lines.append(meaning)
        if len(alike) > MAX_TRACEBACKS:
            rest = [rank for ranks in list(alike.values())[MAX_TRACEBACKS:] for rank in ranks]
            lines.append(f"… and different tracebacks on {name_ranks(rest)}.")
        return lines + ([self.note] if self.note else [])


class RankDied(FourRanksError):
    """A worker process ended while its rank was needed.

    Attributes:
        rank: the first rank that died.
        cause: how it ended, for instance "was killed by SIGKILL".
    """

    def __init__(self, rank: int, cause: str, message: str) -> None:
        self.rank, self.cause = rank, cause
        super().__init__(message)


class DeadlockError(FourRanksError):
    """Ranks wait for something that provably cannot come; the message says who waits where for whom.

    Attributes:
        scene: the proof and the code that led there (`scene.Scene`), from which a notebook draws a figure.
    """

    def __init__(self, message: str, scene: Any = None) -> None:
        self.scene = scene
        super().__init__(message)
