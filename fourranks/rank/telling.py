"""An exception as a rank tells of it: its text, and the part of its traceback that concerns the reader."""

from __future__ import annotations

import argparse
import builtins
import inspect
import itertools
import os
import re
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from ..protocol.places import Line, cell_name, place
from ..protocol.progress import Handled
from ..protocol.remote_error import ErrorWithData, RemoteError
from .frames import Owner, owner, stands_between
from .threads import main_thread

_NO_TEXT = "<exception str() failed>"  # as Python says
_GROUPS: type | tuple[()] = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.10 has none
_CELL = re.compile(r'File "<ipython-input-(\d+)-[^"]*"')


def told(
    kind: type, error: BaseException | None, lines: list[str], message: str | None = None
) -> RemoteError:
    """Put an exception into what the notebook is told of it.

    Args:
        kind: its class.
        error: the exception; None for a SyntaxError of the cell itself.
        lines: its traceback.
        message: its text, if that is known already.
    """
    undefined = getattr(error, "name", None) if isinstance(error, NameError) else None
    undefined = sendable(undefined) if isinstance(undefined, str) else ""  # the reader may give any object
    data = error.data if isinstance(error, ErrorWithData) else None
    text = message_of(error) if message is None else message
    return RemoteError(sendable(kind.__name__), sendable(text), sendable("\n".join(lines)), undefined, data)


def message_of(error: BaseException | None) -> str:
    """Return the text of an exception. The reader's own code may make it; an interrupt ends that code."""
    try:
        return str(error)
    except BaseException:
        return _NO_TEXT


def sendable(text: str) -> str:
    """Escape half a character (a lone surrogate), which a notebook cannot send on."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def in_pythons_words(error: BaseException, begin: TracebackType | None, message: str) -> list[str]:
    """Return the traceback of an exception that IPython does not format; empty if it does."""
    if message == _NO_TEXT:  # which is not to be asked for again
        name = type(error).__name__
        text = "".join([f"{name}  Traceback (most recent call last)\n", *traceback.format_tb(begin)])
        return _CELL.sub(r"Cell In[\1]", f"{text}{name}: {message}").splitlines()
    return by_python(error, begin) if _has_group(error) else []


def by_python(error: BaseException, begin: TracebackType | None) -> list[str]:
    """Return the traceback of an exception as Python formats it, which takes no import and no file."""
    text = "".join(traceback.format_exception(type(error), error, begin))
    return _CELL.sub(r"Cell In[\1]", text).splitlines()


def _has_group(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, _GROUPS) or _has_group(error.__context__))


def exception_under_way() -> BaseException | None:
    """Return the exception whose `except` or `finally` the main thread is in, if there is one."""
    active: Any = sys._current_exceptions().get(main_thread())
    error: BaseException | None = active[1] if isinstance(active, tuple) else active  # before Python 3.12
    return error


def handled() -> Handled | None:
    """Return what is told of that exception, without its text: the reader's own code may make that."""
    error = exception_under_way()
    if error is None:
        return None
    return next((Handled(type(error).__name__, line) for line in reversed([*_own_lines(error)])), None)


def _own_lines(error: BaseException) -> Iterator[Line]:
    """Yield the reader's lines that an exception came through, the outermost first."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if owner(frame) is Owner.READER:
            yield Line(frame.f_code.co_filename, line, frame.f_code.co_name)


def where_left(error: SystemExit) -> Iterator[str]:
    """Describe where a cell was left, by the reader's own lines."""
    for line in _own_lines(error):
        yield f"  {place(*line)}"
    frames = traceback.walk_tb(error.__traceback__)
    if any(frame.f_code.co_filename == argparse.__file__ for frame, _ in frames):
        yield 'A cell has no command line. Set one above it: sys.argv = ["train.py", "--epochs", "3"]'


def above_ipython(begin: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames at its beginning that run the reader's code."""
    while begin is not None and owner(begin.tb_frame) is Owner.BELOW:
        begin = begin.tb_next
    return begin


def without_own_frames(first: TracebackType | None) -> TracebackType | None:
    """Take our own frames out of a traceback, and return what is left of it, if anything."""
    shown = [part for part in _chain(first) if not stands_between(part.tb_frame)]
    for part, following in itertools.zip_longest(shown, shown[1:]):
        part.tb_next = following
    return shown[0] if shown else None


def name_module_of_cells(first: TracebackType | None) -> None:
    """Tell `inspect` the module of a traceback's cells, which it would look for among all modules.

    Torch brings thousands of them, and IPython asks several times for each frame: a recursion without end,
    which has a thousand frames, would take half a minute to show.
    """
    for file in {part.tb_frame.f_code.co_filename for part in _chain(first)}:
        if cell_name(file):
            inspect.modulesbyfile.update(dict.fromkeys((file, os.path.abspath(file)), "__main__"))


def _chain(first: TracebackType | None) -> Iterator[TracebackType]:
    while first is not None:
        yield first
        first = first.tb_next
