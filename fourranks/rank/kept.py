"""Keeps messages whose handles have been thrown away before they were over.

Gloo ties a message to its handle. When the other side comes and the handle is gone, Gloo neither reads nor
writes on that connection any more: every later call that needs it hangs, and some cannot be ended.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable

from .threads import Helper

MOST = 64  # messages that are kept: their tensors take memory, and the other side may never come
PATIENCE = 1.0  # seconds for a wait to fail

_waits: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
_thread: Helper | None = None


def keep(wait: Callable[[], None]) -> None:
    """Keep a message by what waits for its end; takes no lock, so that any destructor may call it."""
    if _waits.qsize() < MOST:
        _waits.put(wait)


def begin_anew() -> None:
    """Start a new thread for what is kept: the one before may wait forever in groups that are gone."""
    global _waits, _thread
    _waits.put(None)
    _waits = queue.SimpleQueue()
    _thread = Helper(target=_wait_for_each, args=[_waits], name="fourranks kept messages")
    _thread.start()


def end(fail: Callable[[], None]) -> None:
    """End the thread; where it waits, `fail` is called, which makes the wait fail."""
    _waits.put(None)
    if _thread is not None:
        _thread.join(0.01)
        if _thread.is_alive():
            fail()
            _thread.join(PATIENCE)


def _wait_for_each(waits: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (wait := waits.get()) is not None:
        with contextlib.suppress(RuntimeError):  # its connection has ended
            wait()
        del wait
