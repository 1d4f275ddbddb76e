"""How much memory ranks take, by what Linux tells the witness of them.

Code in a rank can change the rank's own account of its memory. Linux counts pages, whatever they are used
for, and the ranks that are measured can keep nothing where it does not count (`system_calls.in_sight`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

LOOK_EVERY = 0.005  # seconds
MUCH = 8 << 20  # bytes; a growth by more is worth a note of its own
# Memory that can hold data (anonymous, shared, huge and swapped pages), and page tables.
_COUNTED = ("RssAnon:", "RssShmem:", "HugetlbPages:", "VmSwap:", "VmPTE:")
# Pages that it still has in common with the process that it was forked from.
_SHARED = ("Shared_Dirty:",)


class Footprint:
    """The memory that a process has of its own, beyond what it has now."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path(f"/proc/{pid}")
        self._lock = threading.Lock()
        self._most = self._known = self._before = 0
        self._before = self.most()

    def look(self) -> bool:
        """Look what it takes now; tell whether that is much more than when `most` was asked."""
        taken = bytes_in(self._folder / "status", _COUNTED)
        with self._lock:
            self._most = max(self._most, taken)
            return taken > self._known + MUCH

    def most(self) -> int:
        """Return the most bytes that it has had since this was last asked."""
        taken = bytes_in(self._folder / "status", _COUNTED)
        # Pages never become shared again, so at most these were shared when it took the most. A process that
        # lets go of shared pages thus makes no room.
        shared = bytes_in(self._folder / "smaps_rollup", _SHARED)
        with self._lock:
            most, self._most, self._known = max(self._most, taken), 0, taken
        return most - shared - self._before


class MemoryWatch:
    """Looks at processes again and again, in a thread of its own, until this process ends.

    Args:
        note: is told which process was seen to have much more, and how much it has had.
    """

    def __init__(self, note: Callable[[int, int], None]) -> None:
        self._note = note
        self._footprints: list[Footprint] = []
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def add(self, pid: int) -> Footprint:
        """Measure one more process."""
        footprint = Footprint(pid)
        self._footprints.append(footprint)
        return footprint

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            for footprint in self._footprints:
                with contextlib.suppress(OSError):  # it has ended
                    if footprint.look():
                        self._note(footprint.pid, footprint.most())


def bytes_in(file: Path, names: Collection[str]) -> int:
    """Add up what stands behind these names in a file of /proc that tells of a process in kB.

    The process's name, which such a file has in a line, may hold any byte but the end of a line.

    Raises:
        OSError: none of them is there, as when the process's first thread has ended.
    """
    rows = [line.split() for line in file.read_bytes().split(b"\n")]
    found = [int(row[1]) << 10 for row in rows if row and row[0].decode() in names]
    if not found:
        raise ProcessLookupError(f"{file} tells of no memory")
    return sum(found)
