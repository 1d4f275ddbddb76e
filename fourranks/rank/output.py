"""A cell's output on its way out of a rank: text of Python's streams and displays, as messages.

Text that C code or a child process writes to file descriptors 1 and 2 does not pass here; the notebook reads
those pipes itself.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait

from ..protocol.messages import TEXT_LIMIT, Clear, Display, FromRank, Stream
from .telling import sendable

_WIDGET = "application/vnd.jupyter.widget-view+json"
Emit = Callable[[FromRank], None]


class Output:
    """Has all that this process shows, from now on, leave through `emit`, in the order in which it came."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._stdout = sys.stdout = _LineStream(_Writer("stdout", 1, emit))
        self._stderr = sys.stderr = _LineStream(_Writer("stderr", 2, emit))

    def begin_cell(self, limit: int) -> None:
        """Begin a cell, which may print so many characters."""
        self._stdout.writer.begin_cell(limit)
        self._stderr.writer.begin_cell(limit)
        if not _is_open(sys.stdout):  # an earlier cell may have put a file there, and closed it
            sys.stdout = self._stdout
        if not _is_open(sys.stderr):
            sys.stderr = self._stderr

    def flush(self) -> None:
        """Send what was printed without the end of its line."""
        self._stdout.flush()
        self._stderr.flush()

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], name: str | None, update: bool
    ) -> None:
        """Send a display, after the text that was printed before it."""
        self.flush()
        # Nothing connects a widget with its model on a rank.
        shown = {kind: _content(kind, value) for kind, value in data.items() if kind != _WIDGET}
        self._emit(Display(shown, _plain(dict(metadata)), name, update))

    def clear(self, wait: bool) -> None:
        """Have the notebook clear the cell's output, at once or when more comes."""
        self.flush()
        self._emit(Clear(wait))

    @property
    def dropped(self) -> int:
        """Characters of the current cell that were beyond the limit."""
        return self._stdout.writer.dropped + self._stderr.writer.dropped


class _Writer(io.RawIOBase):
    """The bytes of `sys.stdout` or `sys.stderr`, sent as text until the cell's limit is reached."""

    def __init__(self, name: str, descriptor: int, emit: Emit) -> None:
        self.stream_name, self._descriptor, self._emit = name, descriptor, emit
        self.begin_cell(TEXT_LIMIT)

    def begin_cell(self, limit: int) -> None:
        self._left = limit
        self.dropped = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor  # a child process inherits it

    def write(self, data: Any) -> int:
        shown = bytes(data[: self._left])
        self._left -= len(shown)
        self.dropped += len(data) - len(shown)
        if shown:
            self._emit(Stream(self.stream_name, shown.decode("utf-8", "replace")))
        return len(data)


class _LineStream(io.TextIOWrapper):
    """A text stream that sends every complete line at once, so that a crash cannot swallow it."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__(io.BufferedWriter(writer), encoding="utf-8", errors="replace", line_buffering=True)
        self.writer = writer

    def close(self) -> None:
        """Stay open, also where the reader's code closes it: later cells print, too."""
        self.flush()


class Publisher(DisplayPublisher):
    """Shows what a cell displays."""

    output = AnyTrait()

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: object = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        display_id = (transient or {}).get("display_id")
        self.output.show(data, metadata or {}, None if display_id is None else str(display_id), update)

    def clear_output(self, wait: bool = False) -> None:
        self.output.clear(wait)


class LastValue(DisplayHook):
    """Shows the value of a cell's last expression."""

    shell: InteractiveShell
    output = AnyTrait()
    source = AnyTrait("")  # the cell

    def quiet(self) -> bool:
        """Return whether a semicolon ends the cell; IPython asks its history, which is not kept here."""
        source = self.shell.transform_cell(self.source)
        return bool(self.semicolon_at_end_of_expression(source))  # type: ignore[no-untyped-call]

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.output.show(format_dict, md_dict or {}, None, False)

    def finish_displayhook(self) -> None:
        pass


def _is_open(stream: Any) -> bool:
    return stream is not None and not getattr(stream, "closed", False)


def _content(kind: str, value: Any) -> Any:
    """Return what is shown of a value under a MIME type: text, the bytes of an image, or JSON."""
    if isinstance(value, str):
        return sendable(value)
    if kind.endswith("json"):
        return _plain(value)
    if isinstance(value, bytes) and not kind.startswith("text/"):
        return value
    return sendable(repr(value))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; of a class that only ranks know, or JSON does not, its text."""
    return json.loads(json.dumps(value, skipkeys=True, default=repr))
