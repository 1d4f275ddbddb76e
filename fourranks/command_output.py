"""The output of a command, which may come to an end before the command does.

A Unix command ends quietly when its reader has gone, as behind `| head`, and reports an output that cannot be
written, as on a full disk. Python shows a traceback for both.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO


@contextlib.contextmanager
def ends_with_its_output() -> Iterator[None]:
    """Raise SystemExit, from within, where standard output or standard error cannot be written."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_guarded, before)
    try:
        yield
    finally:
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
        finally:
            sys.stdout, sys.stderr = before


def _guarded(stream: TextIO) -> TextIO:
    """Return a stream to the same place; anything but a stream of Python's own as it is."""
    if type(stream) is not io.TextIOWrapper:  # None in a daemon
        return stream
    stream.flush()
    raw = _Guarded(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Guarded(io.FileIO):
    """A descriptor, the first failure of which ends the command. Later writes are lost."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(128 + signal.SIGPIPE) from None
            raise SystemExit(f"The output cannot be written: {error.strerror}.") from None
