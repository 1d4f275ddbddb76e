"""What processes in a sandbox may take, and the part of it that each can be held to by itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autograder.inside import filesystem


@dataclass(frozen=True)
class Limits:
    """What all processes of a sandbox may take together.

    Attributes:
        cpu_seconds: of all processes, since the sandbox was started.
        disk_bytes: of the files of each folder that can be written. Where these have no size, of one file.
    """

    memory_bytes: int = 8 << 30
    processes: int = 256
    threads: int = 4096
    open_files: int = 4096  # of one process
    all_open_files: int = 50_000
    disk_bytes: int = 256 << 20
    cpu_seconds: float = 1800.0

    @property
    def all_disk_bytes(self) -> int:
        """Return how much all folders that can be written to hold together."""
        return len(filesystem.WRITABLE) * self.disk_bytes


DEFAULT = Limits()


def restrict(limits: Limits = DEFAULT) -> None:
    """Set the limits that each process of a sandbox has for good, before any student's code runs."""
    import resource

    if not filesystem.has_namespaces():  # where the folder itself has a size
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk_bytes, limits.disk_bytes))
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.threads),  # root has no such limit
        (resource.RLIMIT_DATA, limits.memory_bytes),  # what it has asked for; the sum is watched from outside
    ):
        resource.setrlimit(what, (most, most))
    os.nice(5)  # the watch comes first, however many processes there are
    if filesystem.has_namespaces():  # else the first process has done so
        go_first()


def go_first() -> None:
    """Have this process, and all that it starts, end first should the machine itself run out of memory."""
    Path("/proc/self/oom_score_adj").write_text("1000")
