"""Whether Linux has killed a process lately for want of memory."""

from __future__ import annotations

import contextlib
import math
import time

LOOK_EVERY = 1.0  # seconds between looks for processes that Linux has killed for want of memory
KILL_LASTS = 10.0  # seconds that a process with much memory may take to end when Linux kills it


class MemoryKills:
    """Notices when Linux kills processes for want of memory: any process of the machine."""

    def __init__(self) -> None:
        self._count, self._looked, self._since = _out_of_memory_kills(), time.monotonic(), -math.inf

    def look(self) -> None:
        """Look for kills, if that was last done a while ago: it takes as long as a small cell's code."""
        if time.monotonic() - self._looked > LOOK_EVERY:
            self._look()

    def recent(self) -> bool:
        """Return whether Linux has killed one lately, which may be the one whose end is seen now."""
        self._look()
        return self._looked - self._since < KILL_LASTS

    def _look(self) -> None:
        count, self._looked = _out_of_memory_kills(), time.monotonic()
        if count != self._count:
            self._count, self._since = count, self._looked


def _out_of_memory_kills() -> int:
    """Count the processes that Linux has killed for want of memory since the machine started."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as table:
        return int(dict(line.split() for line in table).get("oom_kill", 0))
    return 0
