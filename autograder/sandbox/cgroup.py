"""A cgroup for a sandbox, where this user may make one: Linux then limits its memory and its threads.

The limit of memory includes what Linux keeps for the sandbox. A cgroup is made next to the one that this
process is in, as a user may below a service manager of their own. Where that cannot be, there is none, and
the watch of `sandbox` is all that limits them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

from autograder.inside.limits import Limits

ENDING = 1.0  # seconds that Linux may take to end what is in one
_numbers = itertools.count()


class Cgroup:
    """A folder of Linux's that limits the memory and the threads of the processes in it."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder = folder
        folder.mkdir()
        try:
            (folder / "memory.max").write_text(str(limits.memory_bytes))
            others = {"memory.swap.max": "0", "memory.oom.group": "1", "pids.max": str(limits.threads)}
            for file, value in others.items():
                # Without swap, before Linux 4.19, or where threads are for others to limit.
                with contextlib.suppress(FileNotFoundError):
                    (folder / file).write_text(value)
        except OSError:
            self.close()
            raise

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return the command as one that is in the cgroup from the beginning, if Linux lets it in."""
        return ["/bin/sh", "-c", 'echo 0 > "$0"; exec "$@"', str(self._folder / "cgroup.procs"), *command]

    def was_full(self) -> bool:
        """Tell whether Linux has ended what was in it."""
        events = (self._folder / "memory.events").read_text().split()
        return int(dict(zip(events[::2], events[1::2], strict=True))["oom_kill"]) > 0

    def close(self) -> None:
        """Remove it, when all that was in it has ended."""
        deadline = time.monotonic() + ENDING
        with contextlib.suppress(FileNotFoundError):
            while True:
                try:
                    return self._folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        return
                    time.sleep(0.01)


def make(limits: Limits, sibling: Path | None = None) -> Cgroup | None:
    """Make a cgroup with these limits; None where this process may not make one that limits memory.

    Args:
        sibling: the cgroup next to which it is made; that of this process by default.
    """
    sibling = sibling or _own()
    if sibling is None:
        return None
    try:
        if "memory" not in (sibling.parent / "cgroup.subtree_control").read_text().split():
            return None
        return Cgroup(sibling.parent / f"fourranks-{os.getpid()}-{next(_numbers)}", limits)
    except OSError:  # another user's
        return None


def _own() -> Path | None:
    """Return this process's cgroup of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    tops = [Path(folder) for _, folder, kind, *_ in mounts if kind == "cgroup2"]
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    names = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    return tops[0] / names[0] if tops and names and names[0] else None
