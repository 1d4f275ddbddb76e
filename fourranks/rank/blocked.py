"""Which threads of a rank stand still in a recorded call, and how long its main thread has done so.

Each recorded call passes here, so entering and leaving must cost no more than a microsecond.
"""

from __future__ import annotations

import threading
import time
from typing import TypeAlias

from ..protocol.calls import Call
from .backward import Awaited
from .threads import main_thread

# Reason for a thread's wait: a call, the calls behind a future, or None where the user's own timeout ends it.
Wait: TypeAlias = Call | Awaited | None
_NO_WAIT: Awaited = []  # of a thread that goes on


class BlockedThreads:
    """The threads that stand still, each with what it waits for. For any thread."""

    def __init__(self) -> None:
        self._main = main_thread()
        self._waits: dict[int, Wait] = {}
        self._main_since: float | None = None
        self._seconds = 0.0

    def enter(self, wait: Wait) -> Wait:
        """Note that this thread stands still from now on; `leave` takes the answer."""
        thread = threading.get_ident()
        outer, self._waits[thread] = self._waits.get(thread, _NO_WAIT), wait
        if thread == self._main and outer is _NO_WAIT:
            self._main_since = time.perf_counter()
        return outer

    def leave(self, outer: Wait) -> None:
        """Note that this thread goes on with what it did before `enter`."""
        thread = threading.get_ident()
        if outer is not _NO_WAIT:
            self._waits[thread] = outer
            return
        self._waits.pop(thread, None)
        if thread == self._main and self._main_since is not None:
            self._seconds += time.perf_counter() - self._main_since
            self._main_since = None

    def has_this_thread(self) -> bool:
        """Return whether this thread is noted as one that stands still."""
        return threading.get_ident() in self._waits

    def waits(self, busy: bool) -> dict[int, Call | None]:
        """Return which call each thread waits for, the main thread's first if it is busy, else left out."""
        waits = sorted(self._waits.copy().items(), key=lambda item: item[0] != self._main)
        return {thread: _oldest(wait) for thread, wait in waits if busy or thread != self._main}

    def seconds(self) -> float:
        """Return for how long the main thread has stood still since the start or `forget_seconds`."""
        since = self._main_since
        return self._seconds + (time.perf_counter() - since if since is not None else 0.0)

    def add_seconds(self, seconds: float) -> None:
        """Add a time for which the main thread stood still in C++ code."""
        self._seconds += seconds

    def forget_seconds(self) -> None:
        """Count the seconds from zero."""
        self._seconds = 0.0

    def free_main(self) -> None:
        """Note that the main thread goes on; an interrupt may have come between a wait's end and its note."""
        self._waits.pop(self._main, None)
        self._main_since = None


def _oldest(wait: Wait) -> Call | None:
    """Return the call that a thread waits for: of a future's calls the first that is not complete."""
    if not isinstance(wait, list):
        return wait
    return next((call for call, is_completed in wait if not is_completed()), None)
