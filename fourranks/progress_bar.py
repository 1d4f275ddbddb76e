"""`fourranks.progress`: how far a loop is, on one line for all ranks.

    for step in fourranks.progress(range(1000), "training"):
        ...

In a rank an iteration only counts; the counts travel with the reports that the notebook asks for while a cell
runs, and `views.output` shows the line, which `loops` words. Elsewhere `_Printer` shows it.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from IPython import get_ipython
from IPython.display import display, update_display

from .loops import EVERY, ended, running
from .protocol.bars import Bar

T = TypeVar("T")
MOST_LOOPS = 50  # of one cell and rank; a loop that is new then takes the place of the oldest that has ended
_CAN_BE_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _Open(NamedTuple):
    bar: Bar
    frame: FrameType  # that loops
    thread: int


class Bars:
    """The bars of one process, as far as the notebook needs them."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, str], Bar] = {}
        self._open: list[_Open] = []

    def open(self, description: str, total: int | None, frame: FrameType) -> Bar:
        """Note that a loop begins in the function that `frame` is a call of."""
        self._close_abandoned(frame)
        thread = threading.get_ident()
        depth = sum(one.thread == thread for one in self._open)
        before = self._latest.pop((depth, description), None)
        number = before.round + 1 if before else 0
        bar = Bar(description, total, depth, number, time.perf_counter())
        self._make_room()
        self._latest[depth, description] = bar
        self._open.append(_Open(bar, frame, thread))
        return bar

    def close(self, bar: Bar) -> None:
        """Note that the loop is over, or was left."""
        bar.ended = time.perf_counter()
        self._open = [one for one in self._open if one.bar is not bar]

    def snapshot(self) -> tuple[Bar, ...]:
        """Return all bars; another thread may ask."""
        return tuple(self._latest.values())

    def begin_cell(self) -> None:
        """Forget the loops of the cell before."""
        self._latest, self._open = {}, []

    def end_cell(self) -> tuple[Bar, ...]:
        """Return all bars; a loop that an exception left is over, too."""
        for one in self._open:
            self.close(one.bar)
        return self.snapshot()

    def _close_abandoned(self, frame: FrameType) -> None:
        """Close loops that an exception left: as long as it is remembered, it keeps them alive."""
        stack = set()
        outer: FrameType | None = frame
        while outer is not None:
            stack.add(outer)
            outer = outer.f_back
        for one in self._open:
            suspended = one.frame.f_code.co_flags & _CAN_BE_SUSPENDED
            if one.thread == threading.get_ident() and one.frame not in stack and not suspended:
                self.close(one.bar)

    def _make_room(self) -> None:
        if len(self._latest) >= MOST_LOOPS:
            ended = (key for key, bar in self._latest.items() if bar.ended is not None)
            if (oldest := next(ended, None)) is not None:
                del self._latest[oldest]


_bars = Bars()
_printer: _Printer | None = None  # set below; None in a rank


def progress(iterable: Iterable[T], description: str = "", total: int | None = None) -> Iterator[T]:
    """Loop over `iterable` and show how far the loop is; in a `%%ranks` cell one line for all ranks.

    Args:
        iterable: anything that a `for` takes.
        description: name of the loop.
        total: how many items come, where `len(iterable)` does not tell.
    """
    # As plain values: the notebook is told of them, and knows no class of the reader's.
    count = _length(iterable) if total is None else int(total)
    bar = _bars.open(str(description), count, sys._getframe(1))
    try:
        for item in iterable:
            yield item
            bar.done += 1
            if _printer is not None:
                _printer.show_at_times()
    finally:
        _bars.close(bar)
        if _printer is not None:
            _printer.close(bar)


def collect() -> Bars:
    """Have a rank only count its loops from now on, in these bars."""
    global _printer
    _printer = None
    return _bars


def _length(iterable: Iterable[Any]) -> int | None:
    try:
        return len(iterable)  # type: ignore[arg-type]
    except TypeError:
        return None


# --- where there are no ranks -----------------------------------------------------------------------------


class _Printer:
    """Shows the line of this process: under a notebook's cell, in a terminal, or only its end in a file."""

    def __init__(self) -> None:
        self._due = 0.0
        self._display_id: str | None = None

    def show_at_times(self) -> None:
        """Show the line unless that was just done; called after every iteration."""
        if (now := time.perf_counter()) >= self._due:
            self._due = now + EVERY
            self._show(" › ".join(line for _, line in running({0: _bars.snapshot()}, now)))

    def close(self, bar: Bar) -> None:
        """End a loop: an outermost one leaves its line, the others leave nothing."""
        if bar.depth == 0:
            self._show("\n".join(line for _, line in ended({0: [bar]})), last=True)
            self._due = 0.0
            _bars.begin_cell()

    def _show(self, line: str, last: bool = False) -> None:
        if getattr(get_ipython(), "kernel", None) is not None:
            self._update_display(line, last)
        elif sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]:{width}}", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last:
            print(line, file=sys.stderr, flush=True)

    def _update_display(self, line: str, last: bool) -> None:
        if self._display_id is None:
            self._display_id = display({"text/plain": line}, raw=True, display_id=True).display_id
        else:
            update_display({"text/plain": line}, raw=True, display_id=self._display_id)
        if last:
            self._display_id = None


_printer = _Printer()
