"""Limits of the processes in a sandbox, and the part of them that each can be held to by itself."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from autograder.inside import filesystem

UNREAD_SHARE = 32  # of the machine's memory, one part: see Limits


@dataclass(frozen=True)
class Limits:
    """Limits of all processes of a sandbox together.

    Attributes:
        cpu_seconds: of all processes, since the sandbox was started.
        disk_bytes: of the files of each folder that can be written. Where these have no size, of one file.
        unread_bytes: that its connections hold. Linux lets all connections of a machine hold about three
            times as many; when they do, those of other sandboxes hardly go on.
    """

    memory_bytes: int = 8 << 30
    processes: int = 256
    threads: int = 4096
    open_files: int = 4096  # of one process
    all_open_files: int = 50_000
    disk_bytes: int = 256 << 20
    cpu_seconds: float = 1800.0
    unread_bytes: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // UNREAD_SHARE

    @property
    def all_disk_bytes(self) -> int:
        """Bytes that all folders that can be written to hold together."""
        return len(filesystem.WRITABLE) * self.disk_bytes


DEFAULT = Limits()
MOST_SIGNALS = 1024  # on their way to processes of a user, and timers
LEAST = Limits(memory_bytes=4 << 30, threads=1024, open_files=1024)  # with which every solution still passes


def restrict(limits: Limits = DEFAULT) -> None:
    """Set the limits that each process of a sandbox has for good, before any student's code runs."""
    if not filesystem.has_namespaces():  # where the folder itself has a size
        _limit(resource.RLIMIT_FSIZE, limits.disk_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    _limit(resource.RLIMIT_NPROC, limits.threads)  # root has no such limit
    _limit(resource.RLIMIT_DATA, limits.memory_bytes)  # asked for; the sum is watched from outside
    os.nice(5)  # the watch comes first, however many processes there are
    if filesystem.has_namespaces():  # else the first process has done so
        go_first()


def restrict_students() -> None:
    """Set the limits that a process with students' code has beyond those of its sandbox.

    Linux refuses to send a descriptor once the sender's user has as many in transit, over all sandboxes, as
    the sender may open. With a lower limit for students' code, no process that starts ranks is refused. It
    counts timers, and signals on their way, in the same manner.
    """
    _limit(resource.RLIMIT_NOFILE, LEAST.open_files)
    _limit(resource.RLIMIT_SIGPENDING, MOST_SIGNALS)


def _limit(resource_number: int, most: int) -> None:
    """Limit this process for good, to less where it may have less already."""
    hard = resource.getrlimit(resource_number)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource_number, (most, most))


def too_low(least: Limits = LEAST) -> str:
    """Say which hard limit of this process, which a sandbox inherits, is too low to grade; "" if none is."""
    for number, letter, what, needed in (
        (resource.RLIMIT_NOFILE, "n", "open files", least.open_files),
        (resource.RLIMIT_NPROC, "u", "processes of its user", least.threads),
        (resource.RLIMIT_DATA, "d", "bytes of data", least.memory_bytes),
        (resource.RLIMIT_AS, "v", "bytes of addresses", least.memory_bytes),
        (resource.RLIMIT_FSIZE, "f", "bytes in a file", least.disk_bytes),
        (resource.RLIMIT_CPU, "t", "seconds of processor time", int(least.cpu_seconds)),
    ):
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY and hard < needed:
            return (
                f"A process may have {hard:,} {what} here, and grading takes {needed:,}: raise the hard "
                f"limit (`ulimit -H{letter}`), in /etc/security/limits.conf or the container's settings."
            )
    return ""


def go_first() -> None:
    """Have this process, and all that it starts, end first should the machine itself run out of memory."""
    Path("/proc/self/oom_score_adj").write_text("1000")
