"""Rules of every board: its player's moves can be read, in a bounded number of steps.

A player hands in a list, a generator or a function, with whatever mistakes are in it. Reading it must end,
either in the moves or in one sentence.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, TypeVar

MOST_STEPS = 1_000_000  # of Python's interpreter; a generator of any board takes some thousand
_LONGEST_SHOWN = 60  # characters of what a player wrote

Result = TypeVar("Result")


class _TooManySteps(BaseException):
    """A player's code has run for too long; its own `except Exception` must not stop this."""


class RuleBroken(Exception):
    """A player's moves cannot be read, or a rule forbids them; the text is all that the player is told."""


def bounded(work: Callable[[], Result]) -> Result:
    """Call what runs a player's code, for at most `MOST_STEPS` steps of Python.

    What a library does in one call is one step: `sum(itertools.count())` is not found out.

    Raises:
        RuleBroken: the code takes more steps, or raises; the cause is the code's own exception.
    """
    try:
        with _step_limit():
            return work()
    except RuleBroken:
        raise
    except _TooManySteps as error:
        raise RuleBroken(
            f"Your code has not ended after {MOST_STEPS:,} steps. Is there an endless loop in it?"
        ) from error
    except RecursionError as error:
        raise RuleBroken("Your function calls itself without end.") from error
    except Exception as error:
        what = f"{type(error).__name__}: {_in_one_line(error)}"
        raise RuleBroken(f"Your code raised {what}{_place(error)}.") from error


def items(value: Any, most: int, what: str) -> list[Any]:
    """Return what an iterable of the player's yields, at most one more than `most`.

    Raises:
        RuleBroken: it cannot be iterated.
    """
    if callable(value):
        raise RuleBroken(f"{what} is a function that has not been called: write {shown(value)}().")
    try:
        iterator = iter(value)
    except TypeError:
        raise RuleBroken(f"{what} has to be a list, not {shown(value)}.") from None
    return list(islice(iterator, most + 1))


def shown(value: Any) -> str:
    """Return the text of a value, short enough for a sentence."""
    name = getattr(value, "__name__", None)
    text = name if isinstance(name, str) else reprlib.repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def whole(value: Any) -> int | None:
    """Return an integer as such, numpy's too; None for anything else, a bool among them."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return int(value.__index__())
    except TypeError:  # an array of several numbers is none
        return None


def listed(names: list[str]) -> str:
    """Return names as in a sentence: "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@contextmanager
def _step_limit() -> Iterator[None]:
    """Count lines and instructions, with Python's own hook for debuggers, and stop at the limit.

    Some versions of Python report no line in a loop that stands on one, and some few instructions.
    """
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += 1
        if steps > MOST_STEPS:
            raise _TooManySteps
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


def _in_one_line(error: Exception) -> str:
    try:
        return " ".join(str(error).split())
    except Exception:  # a player's own exception may have any mistake
        return "an exception without a text"


def _place(error: Exception) -> str:
    """Return the last line of the player's own file, in brackets; "" if the error came before the first."""
    trace = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    theirs = [(file, line) for file, line in trace if Path(file).parent != Path(__file__).parent]
    lines = [line for file, line in theirs if file == theirs[0][0]]
    return f" (line {lines[-1]} of it)" if lines else ""
