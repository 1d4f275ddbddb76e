"""One line that says how far a class is: updated in place on a terminal, written now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TextIO

ON_TERMINAL = 0.5  # seconds between updates
ELSEWHERE = 30.0


class ProgressLine:
    """Writes the line from a thread of its own, as long as this context lasts.

    Args:
        total: how many submissions there are.
        running: those that are being run, and for how many seconds.

    Attributes:
        done: submissions that are dealt with.
        ran: those among them that had to be run; the rate is theirs.
    """

    def __init__(
        self, total: int, running: Callable[[], Mapping[str, float]], stream: TextIO = sys.stderr
    ) -> None:
        self.done = self.ran = 0
        self._total = total
        self._running = running
        self._stream = stream
        self._in_place = stream.isatty()
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="progress", daemon=True)

    def __enter__(self) -> ProgressLine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._in_place:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _write_on(self) -> None:
        while not self._over.wait(ON_TERMINAL if self._in_place else ELSEWHERE):
            elapsed = time.monotonic() - self._began
            text = line(self.done, self._total, self.ran, elapsed, self._running())
            self._stream.write(f"\r{text}\x1b[K" if self._in_place else f"{text}\n")
            self._stream.flush()


def line(done: int, total: int, ran: int, elapsed: float, running: Mapping[str, float]) -> str:
    """Say how many are done and how fast, how long the rest takes, and which takes longest.

    Args:
        elapsed: seconds in which `ran` submissions were run.
        running: seconds so far, by the student who is being graded.
    """
    parts = [f"{done}/{total}"]
    if ran:
        parts.append(f"{60 * ran / elapsed:.1f} a minute")
        parts.append(f"{clock((total - done) * elapsed / ran)} left")
    if running:
        student, seconds = max(running.items(), key=lambda item: item[1])
        parts.append(f"longest: {student} {clock(seconds)}")
    return " · ".join(parts)


def clock(seconds: float) -> str:
    """Write seconds as 0:48, 12:30, 1:04:09."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
