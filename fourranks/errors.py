"""Errors of a world of ranks, each of which explains itself.

    FourRanksError
    ├── RankError      the reader's code raised on some ranks
    ├── RankDied       a worker process ended
    ├── DeadlockError  ranks wait for something that cannot come
    ├── CellTimeout    a cell took longer than it was given
    └── StartError     a world could not be started

In a notebook an error shows its own text and no frames of this package.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from .cuda_errors import explain
from .naming import name_ranks, sentence_case
from .protocol.remote_error import RemoteError, plain
from .scene import Scene
from .transcript import Transcript

MAX_WIDTH = 100  # characters of a line of an error's own text
MAX_TRACEBACKS = 4  # different tracebacks shown in full; the rest are counted
MAX_MESSAGES = 3  # different messages shown below one of them; the rest are counted, too
_AROUND = re.compile(r" +\d+\b")  # begins a line above or below the one that raised


def joined(*parts: str) -> str:
    """Put those of these parts that say something below each other."""
    return "\n".join(part for part in parts if part)


def _wrapped(text: str) -> str:
    """Break the text into lines that a notebook need not break: JupyterLab does so inside words."""
    return "\n".join(_wrapped_line(line) if len(line) > MAX_WIDTH else line for line in text.split("\n"))


def _wrapped_line(line: str) -> str:
    hanging = "    " if line.startswith(" ") else ""
    return textwrap.fill(
        line, MAX_WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


class Aftermath(Enum):
    """The state that a failed cell leaves the world in, as told to the reader."""

    INTACT = ""
    FORMED_ANEW = (
        "All ranks are free again and keep their variables. The default process group was formed\n"
        "again; sub-groups from new_group, and what holds one, must be made again."
    )
    RESTARTED = "Some ranks could not be freed, so all were started again: their variables are lost."
    GONE = (
        "Some ranks could not be freed, and new ones could not be started: all variables are lost.\n"
        "`%ranks restart` tries it again."
    )
    ENDED = "The ranks were restarted or stopped while it ran: their variables are lost."
    DEAD = "The other ranks keep their variables. `%ranks restart` starts all of them again."
    ALL_DEAD = "No rank is left, so their variables are lost. `%ranks restart` starts all of them again."


class Explained(BaseException):
    """The base of this package's errors: their content as data, put together as a text when it is shown.

    Attributes:
        explanation: what happened.
        aftermath: the state of the world after it.
        transcript: the ranks' output up to then, if they ran a cell or a call.
    """

    def __init__(
        self,
        explanation: str,
        aftermath: Aftermath = Aftermath.INTACT,
        transcript: Transcript | None = None,
    ) -> None:
        # Without BaseException's __init__: `args` are what the error was made of, so that it can be pickled.
        self.explanation, self.aftermath, self.transcript = explanation, aftermath, transcript

    def __str__(self) -> str:
        return joined(self.explanation, self.aftermath.value and f"\n{self.aftermath.value}")


class FourRanksError(Explained, Exception):
    """Base of all errors of this package."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback through this package's frames."""
        return [f"\x1b[31m{type(self).__name__}\x1b[0m: {_wrapped(str(self))}"]


class StartError(FourRanksError):
    """A world could not be started; the message says why and what to do."""


class CellTimeout(FourRanksError):
    """A cell was stopped because it took longer than its timeout.

    Attributes:
        whereabouts: where the ranks were then, and what some had raised.
        errors: the exception of each rank that had raised one.
    """

    def __init__(
        self,
        whereabouts: str,
        aftermath: Aftermath = Aftermath.INTACT,
        transcript: Transcript | None = None,
        errors: Mapping[int, RemoteError] | None = None,
    ) -> None:
        what = "The cell took longer than its timeout and was stopped."
        super().__init__(joined(what, whereabouts), aftermath, transcript)
        self.whereabouts, self.errors = whereabouts, errors or {}


class CellInterrupted(Explained, KeyboardInterrupt):
    """A cell was interrupted; the explanation says where the ranks were."""

    def _render_traceback_(self) -> list[str]:
        return [f"\x1b[31mKeyboardInterrupt\x1b[0m: {self}"]


@contextmanager
def interrupts_as_one_message(message: str) -> Iterator[None]:
    """Show an interrupt without frames of this package, also where it comes while no rank runs a cell."""
    try:
        yield
    except CellInterrupted:  # which says more
        raise
    except KeyboardInterrupt:
        raise CellInterrupted(message) from None


class RankError(FourRanksError):
    """The reader's code raised an exception on some ranks.

    Attributes:
        errors: the exception of each rank that raised one.
        meanwhile: the call that the other ranks waited in, if it can no longer end.
        hint: advice.
    """

    def __init__(
        self,
        errors: dict[int, RemoteError],
        aftermath: Aftermath = Aftermath.INTACT,
        transcript: Transcript | None = None,
        meanwhile: str = "",
    ) -> None:
        self._told = list(_raised(errors))
        super().__init__(plain("\n".join(self._told)), aftermath, transcript)
        self.errors, self.meanwhile, self.hint = errors, meanwhile, ""

    def __str__(self) -> str:
        return plain("\n".join(self._render_traceback_()))

    def _render_traceback_(self) -> list[str]:
        ending = self.aftermath.value
        if self.meanwhile:
            ending = joined("Meanwhile:", self.meanwhile, ending and f"\n{ending}")
        note = joined(self.hint, ending)
        return [*self._told, note] if note else self._told


def _raised(errors: Mapping[int, RemoteError]) -> Iterator[str]:
    """Tell of exceptions, of those with equal frames once, with the ranks that raised them."""
    alike: dict[tuple[str, str], dict[str, list[int]]] = {}
    for rank, error in sorted(errors.items()):
        messages = alike.setdefault((error.name, _frames(error)), {})
        messages.setdefault(error.message, []).append(rank)
    for (name, _), messages in list(alike.items())[:MAX_TRACEBACKS]:
        first, *others = messages.values()
        yield f"\x1b[31m{sentence_case(name_ranks(_sorted(messages.values())))} raised {name}\x1b[0m"
        yield errors[first[0]].traceback
        yield from (f"On {name_ranks(ranks)}: {errors[ranks[0]].message}" for ranks in others[:MAX_MESSAGES])
        if rest := others[MAX_MESSAGES:]:
            yield f"… and different messages on {name_ranks(_sorted(rest))}."
        if meaning := explain(errors[first[0]].message):
            yield meaning
    if rest := [ranks for messages in list(alike.values())[MAX_TRACEBACKS:] for ranks in messages.values()]:
        yield f"… and different tracebacks on {name_ranks(_sorted(rest))}."


def _frames(error: RemoteError) -> str:
    """Return the lines that raised, without the message below them, in which ranks often name themselves.

    Of a function on one line, IPython shows the lines around it on some ranks, and not on others.
    """
    lines = plain(error.traceback).removesuffix(plain(error.message)).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if not _AROUND.match(line))


def _sorted(several: Iterable[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(several))


class RankDied(FourRanksError):
    """A worker process ended while its rank was needed.

    Attributes:
        rank: the first rank that died.
        cause: how it ended, for instance "was killed by SIGKILL".
    """

    def __init__(
        self,
        rank: int,
        cause: str,
        explanation: str,
        aftermath: Aftermath = Aftermath.INTACT,
        transcript: Transcript | None = None,
    ) -> None:
        super().__init__(explanation, aftermath, transcript)
        self.rank, self.cause = rank, cause

    def __str__(self) -> str:
        return joined(self.explanation, str(self.transcript or ""), self.aftermath.value)


class DeadlockError(FourRanksError):
    """Ranks wait for something that provably cannot come; the explanation says who waits where for whom.

    Attributes:
        scene: the proof and the code that led there, from which a notebook draws a figure.
    """

    def __init__(
        self,
        explanation: str,
        aftermath: Aftermath = Aftermath.INTACT,
        transcript: Transcript | None = None,
        scene: Scene | None = None,
    ) -> None:
        super().__init__(explanation, aftermath, transcript)
        self.scene = scene
