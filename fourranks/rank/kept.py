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

_waits: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()


def keep(wait: Callable[[], None]) -> None:
    """Keep a message by what waits for its end; takes no lock, so that any destructor may call it."""
    if _waits.qsize() < MOST:
        _waits.put(wait)


def begin_anew() -> None:
    """Start a new thread for what is kept: the one before may wait forever in groups that are gone."""
    global _waits
    _waits.put(None)
    _waits = queue.SimpleQueue()
    Helper(target=_wait_for_each, args=[_waits], name="fourranks kept messages").start()


def _wait_for_each(waits: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (wait := waits.get()) is not None:
        with contextlib.suppress(RuntimeError):  # its connection has ended
            wait()
        del wait
