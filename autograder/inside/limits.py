"""What processes in a sandbox may take, and the part of it that each can be held to by itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """What all processes of a sandbox may take together.

    Attributes:
        cpu_seconds: of all processes, since the sandbox was started.
        disk_bytes: of the files of each folder that can be written; all are in memory.
    """

    memory_bytes: int = 8 << 30
    processes: int = 256
    threads: int = 4096
    open_files: int = 4096  # of one process
    all_open_files: int = 50_000
    disk_bytes: int = 256 << 20
    cpu_seconds: float = 1800.0


DEFAULT = Limits()


def restrict(limits: Limits = DEFAULT) -> None:
    """Runs in the sandbox, before any code of a student's: limits that each process has for good."""
    import resource

    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.threads),  # root has no such limit
        (resource.RLIMIT_DATA, limits.memory_bytes),  # what it has asked for; the sum is watched from outside
    ):
        resource.setrlimit(what, (most, most))
    os.nice(5)  # the watch comes first, however many processes there are
    # Should the machine itself run out of memory, this goes first.
    Path("/proc/self/oom_score_adj").write_text("1000")
