"""What the processes of a sandbox have taken, as far as Linux tells, and which limit that exceeds."""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from autograder.inside.footprint import bytes_in
from autograder.inside.limits import Limits

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What all processes of a sandbox have taken."""

    memory_bytes: int
    processes: int
    threads: int
    cpu_seconds: float


@dataclass(frozen=True)
class Files:
    """What they have opened."""

    number: int = 0
    memory_bytes: int = 0  # of files without a name, which no folder's size limits


NO_FILES = Files()


def exceeded(limits: Limits, usage: Usage, files: Files = NO_FILES) -> str:
    """The limit that a sandbox has gone beyond, in words; "" when there is none."""
    if usage.processes > limits.processes:
        return f"more than {limits.processes} processes at a time"
    if usage.threads > limits.threads:
        return f"more than {limits.threads} threads at a time"
    if files.number > limits.all_open_files:
        return f"more than {limits.all_open_files:,} open files"
    if max(usage.memory_bytes, files.memory_bytes) > limits.memory_bytes:
        return too_much_memory(limits)
    if usage.cpu_seconds > limits.cpu_seconds:
        return f"more than {limits.cpu_seconds:g} s of processor time"
    return ""


def too_much_memory(limits: Limits) -> str:
    """The limit of memory, in words."""
    return f"more than {limits.memory_bytes >> 30} GiB of memory"


def usage_of(processes: Path, limits: Limits) -> Usage:
    """What the processes of a sandbox take; those that end meanwhile are left out.

    Args:
        processes: the sandbox's own /proc, as seen from outside.
        limits: where there are more processes than that, no more is looked at: they multiply meanwhile.
    """
    pids = _pids(processes)
    memory = tables = threads = 0
    seconds = 0.0
    for pid in pids if len(pids) <= limits.processes else ():
        with contextlib.suppress(OSError, IndexError):
            fields = (processes / pid / "stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / _TICKS  # its own, and of children that have ended
            threads += int(fields[17])
            memory += int(fields[21]) * mmap.PAGESIZE
            tables += bytes_in(processes / pid / "status", ("VmPTE:",))
    if memory + tables > limits.memory_bytes:  # which counts what processes share once for each
        memory = _shared_memory(processes, limits)
    return Usage(memory + tables, len(pids), threads, seconds)


def _shared_memory(processes: Path, limits: Limits) -> int:
    """Bytes that they have together, each page counted once: that takes milliseconds for each process."""
    memory = 0
    for pid in _pids(processes):
        with contextlib.suppress(OSError):
            memory += bytes_in(processes / pid / "smaps_rollup", ("Pss:",))
        if memory > limits.memory_bytes or len(_pids(processes)) > limits.processes:
            break
    return memory


def _pids(processes: Path) -> list[str]:
    return [name for name in os.listdir(processes) if name.isdigit()]


def files_of(processes: Path) -> Files:
    """What the processes of a sandbox have opened; those that end meanwhile are left out."""
    number, sizes = 0, {}
    for pid in _pids(processes):
        with contextlib.suppress(OSError), os.scandir(processes / pid / "fd") as descriptors:
            for descriptor in descriptors:
                number += 1
                if os.readlink(descriptor.path).startswith("/memfd:"):
                    status = os.stat(descriptor.path)
                    sizes[status.st_ino] = status.st_blocks * 512
    return Files(number, sum(sizes.values()))
