"""A notebook's cells, run one by one as a kernel does. Students' code runs in this process and in ranks only.

`broker` asks over a socket, in frames of `wire`. The cells' output goes back as text and pictures, as much
of it as people read; a function goes back as the bytes that ranks make it of.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import socket
import sys
from typing import Any

from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.paths import get_ipython_dir
from traitlets.config import Config

from autograder.inside import wire
from autograder.inside.call_on_rank import by_value
from autograder.inside.runs import NotDefined, RunFailed
from fourranks.rank.telling import name_module_of_cells
from fourranks.shipping import notebook_cells

MAX_TEXT = 100_000  # characters of a cell's text that are kept
MAX_PICTURES = 8 << 20  # bytes of a cell's pictures that are kept


def serve(connection: socket.socket) -> None:
    """Answer requests until the other side is gone."""
    # Into a profile that it makes IPython copies a file, with its mode, which a sandbox may refuse to set.
    os.makedirs(os.path.join(get_ipython_dir(), "profile_default", "startup"), exist_ok=True)
    # Nothing of a student's is to end up in the grader's own IPython history.
    shell = _QuietShell.instance(config=Config(HistoryManager={"enabled": False}))
    with contextlib.suppress(EOFError):
        while True:
            wire.send(connection, _answer(shell, wire.receive(connection)))


def _answer(shell: _QuietShell, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"cell": source}:
            return shell.run(source)
        case {"ship": name}:
            return _shipped(name, shell.user_ns.get(name))
    raise ValueError("no request")


def _shipped(name: str, function: object) -> dict[str, Any]:
    """Return a function by value, with the text of the cells that its tracebacks show."""
    if not callable(function):
        return {"failure": f"the notebook defines no function {name}", "exception": NotDefined.__name__}
    try:
        sources = {file: cell.text for file, cell in notebook_cells().items()}
        return {"function": by_value(function), "sources": sources}
    except RunFailed as failure:
        return {"failure": failure.message, "exception": failure.exception}


class _QuietShell(InteractiveShell):
    """A shell whose cells show nothing; `run` returns what they would."""

    def run(self, source: str) -> dict[str, Any]:
        """Run a cell; return what it printed and displayed, and the error that it ended in, if it did."""
        text = _Text()
        self.display_pub = shown = _Displays(parent=self, shell=self)
        self._error: dict[str, str] | None = None
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            self.run_cell(source, store_history=True)  # type: ignore[no-untyped-call]
        return {"text": text.getvalue(), "displays": shown.kept(), "error": self._error}

    def enable_gui(self, gui: str | None = None) -> None:
        """Have no event loop of a window system, as `%matplotlib inline` asks for."""

    def ask_exit(self) -> None:
        """Go on, as the cells after `exit` or `quit()` may have answers in them."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Make a traceback quickly, though it may have a thousand frames of cells."""
        name_module_of_cells(sys.exc_info()[2])
        super().showtraceback(*args, **kwargs)

    def _showtraceback(self, kind: type, error: BaseException, traceback: list[str]) -> None:
        """Keep what IPython would print."""
        lines = "\n".join(map(str, traceback))
        self._error = {
            "name": wire.sendable(kind.__name__[:MAX_TEXT]),
            "message": wire.sendable(str(error)[:MAX_TEXT]),
            "traceback": wire.sendable(lines[-MAX_TEXT:]),
        }


class _Text(io.StringIO):
    """The beginning of what is written to it."""

    def write(self, text: str) -> int:
        super().write(wire.sendable(text[: max(0, MAX_TEXT - self.tell())]))
        return len(text)

    def fileno(self) -> int:
        """Return a file that programs and C code may write to: nothing of it is kept."""
        return 1


class _Displays(DisplayPublisher):
    """The displays, each as it was last updated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._shown: dict[object, dict[str, str]] = {}

    def publish(self, data: dict[str, Any], *_: Any, transient: Any = None, **__: Any) -> None:
        key = (transient or {}).get("display_id") or object()
        self._shown[key] = {
            kind: wire.sendable(value) if isinstance(value, str) else base64.b64encode(value).decode()
            for kind, value in data.items()
            if kind in ("text/plain", "image/png")
        }

    def clear_output(self, wait: bool = False) -> None:
        self._shown.clear()

    def kept(self) -> list[dict[str, str]]:
        """Return the text and the picture of each display, up to what people read."""
        left = {"text/plain": MAX_TEXT, "image/png": MAX_PICTURES}
        kept = []
        for shown in self._shown.values():
            for kind, value in shown.items():
                left[kind] -= len(value)
            if min(left.values()) < 0:
                break
            kept.append(shown)
        return kept


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
