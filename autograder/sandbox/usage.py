"""Resources taken by the processes of a sandbox, as far as Linux tells, and the limit that they exceed."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autograder.inside.footprint import bytes_in
from autograder.inside.limits import Limits
from autograder.kit.folders import walk

_TICKS = os.sysconf("SC_CLK_TCK")
_HIDDEN = (errno.EACCES, errno.ENAMETOOLONG)  # why what lies in a folder cannot be seen
_LISTENS = "0A"  # the state of what waits for connections
LOOKS = 20  # at folders in a folder: programs remove some meanwhile, but not each time that one looks
_BESIDE = ("VmPTE:", "VmSwap:", "HugetlbPages:")  # memory beside the pages that Linux sums up
AN_ENTRY = 4096  # bytes that a name in a folder counts for: the file system keeps it, however small the file


@dataclass(frozen=True)
class Usage:
    """Resources that all processes of a sandbox have taken."""

    memory_bytes: int
    processes: int
    threads: int
    cpu_seconds: float
    unread_bytes: int = 0  # of connections


@dataclass(frozen=True)
class OpenFiles:
    """Files and memory that they have opened.

    Attributes:
        hidden: processes of which Linux does not tell.
    """

    number: int = 0
    memory_bytes: int = 0  # of files without a name, which no folder's size limits
    disk_bytes: int = 0  # of files with one, or that had one, where no folder's size limits them
    hidden: int = 0


NO_FILES = OpenFiles()


def exceeded(limits: Limits, usage: Usage, files: OpenFiles = NO_FILES) -> str:
    """Say which limit a sandbox has gone beyond; "" when there is none."""
    if usage.processes > limits.processes:
        return f"more than {limits.processes} processes at a time"
    if usage.threads > limits.threads:
        return f"more than {limits.threads} threads at a time"
    if files.hidden:
        return "a program that can be run and not read: what it takes cannot be watched"
    if files.number > limits.all_open_files:
        return f"more than {limits.all_open_files:,} open files"
    if max(usage.memory_bytes, files.memory_bytes) > limits.memory_bytes:
        return too_much_memory(limits)
    if files.disk_bytes > limits.all_disk_bytes:
        return f"more than {limits.all_disk_bytes >> 20} MiB of files"
    if usage.unread_bytes > limits.unread_bytes:
        return f"more than {limits.unread_bytes >> 20} MiB sent over connections and not received"
    if usage.cpu_seconds > limits.cpu_seconds:
        return f"more than {limits.cpu_seconds:g} s of processor time"
    return ""


def too_much_memory(limits: Limits) -> str:
    """Say that the limit of memory was exceeded."""
    return f"more than {limits.memory_bytes >> 30} GiB of memory"


def usage_of(processes: Callable[[], list[Path]], limits: Limits) -> Usage:
    """Read what the processes of a sandbox take; those that end meanwhile are left out.

    Args:
        processes: lists their folders in /proc.
        limits: where there are more processes than that, no more is looked at: they multiply meanwhile.
    """
    folders = processes()
    memory = beside = threads = 0
    seconds = 0.0
    for folder in folders if len(folders) <= limits.processes else ():
        with contextlib.suppress(OSError, IndexError):
            fields = _stat(folder)
            seconds += sum(map(int, fields[11:15])) / _TICKS  # its own, and of children that have ended
            threads += int(fields[17])
            thread = _living_thread(folder)
            memory += _own_memory(thread)
            beside += bytes_in(thread / "status", _BESIDE)
    if memory + beside > limits.memory_bytes:  # which counts what processes share once for each
        memory = _shared_memory(processes, limits)
    return Usage(memory + beside, len(folders), threads, seconds)


def unread_bytes(network: Path, limits: Limits) -> int:
    """Return how many bytes sockets of TCP and UDP hold, those sent and those to be received.

    Linux takes milliseconds to list them, so they are listed only while all of the machine's hold as many as
    these may: zero otherwise.

    Args:
        network: the folder in /proc in which Linux tells of a network.
    """
    total = 0
    for line in (network / "sockstat").read_text().splitlines():
        protocol, *_, pages = line.split()
        if protocol in ("TCP:", "UDP:") and int(pages) * mmap.PAGESIZE > limits.unread_bytes:
            name = protocol[:-1].lower()
            total += sum(_unread(network / file) for file in (name, f"{name}6"))
    return total


def _unread(connections: Path) -> int:
    """Add up what a list of connections says of their queues; those that listen have others."""
    total = 0
    with contextlib.suppress(FileNotFoundError):  # without IPv6
        for line in connections.read_text().splitlines()[1:]:
            state, queues = line.split()[3:5]
            total += sum(int(queue, 16) for queue in queues.split(":")) if state != _LISTENS else 0
    return total


def _shared_memory(processes: Callable[[], list[Path]], limits: Limits) -> int:
    """Add up their memory, each page counted once: that takes milliseconds for each process."""
    memory = 0
    for folder in processes():
        with contextlib.suppress(OSError, IndexError):
            thread = _living_thread(folder)
            try:
                memory += bytes_in(thread / "smaps_rollup", ("Pss:",))
            except PermissionError:  # how many of its pages are shared is not told
                memory += _own_memory(thread)
        if memory > limits.memory_bytes or len(processes()) > limits.processes:
            break
    return memory


def _own_memory(process: Path) -> int:
    return int(_stat(process)[21]) * mmap.PAGESIZE


def begun(process: Path) -> int:
    """Return when a process was started, in ticks since the machine was.

    Raises:
        OSError: there is no such process.
    """
    return int(_stat(process)[19])


def _stat(process: Path) -> list[str]:
    """Read what Linux says of a process, from its state on; its name before that may hold any bytes."""
    return (process / "stat").read_bytes().rpartition(b")")[2].decode().split()


def _living_thread(process: Path) -> Path:
    """Return where Linux tells of a process's memory and files.

    When its first thread has ended, nothing of them is told but with its other threads.
    """
    if _stat(process)[0] == "Z":
        for thread in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                if _stat(thread)[0] not in "ZX":
                    return thread
    return process


def files_of(processes: Iterable[Path]) -> OpenFiles:
    """Read what processes have opened, by their folders in /proc; those that end meanwhile are left out."""
    number = hidden = 0
    in_memory: dict[tuple[int, int], int] = {}
    removed: dict[tuple[int, int], int] = {}  # which no folder lists any more
    for folder in processes:
        try:
            with os.scandir(_living_thread(folder) / "fd") as descriptors:
                for descriptor in descriptors:
                    number += 1
                    status = _status(descriptor.path)
                    if status is not None and status.st_nlink == 0:
                        sizes = in_memory if _has_no_name(descriptor.path) else removed
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
        except PermissionError:
            hidden += _has_memory(folder)
        except OSError:
            pass
    return OpenFiles(number, sum(in_memory.values()), sum(removed.values()), hidden)


def _status(descriptor: str) -> os.stat_result | None:
    """Return what Linux tells of an open file; None if it was closed meanwhile.

    Raises:
        PermissionError: Linux does not tell.
    """
    try:
        return os.stat(descriptor)
    except PermissionError:
        raise
    except OSError:
        return None


def _has_memory(process: Path) -> bool:
    """Tell whether a process of which nothing is told runs a program: one that is ending does not."""
    with contextlib.suppress(OSError, IndexError):
        return int(_stat(_living_thread(process))[20]) > 0
    return False


def _has_no_name(descriptor: str) -> bool:
    """Tell whether a file never had a name; the path of one that had may be too long to be read."""
    with contextlib.suppress(OSError):
        return os.readlink(descriptor).startswith("/memfd:")
    return False


def disk_of(folder: Path, most: int) -> int:
    """Add up what the files below a folder take on disk, until it is more than `most`.

    A folder that cannot be read counts for more, for instance because its path is too long for Linux, or
    because it is renamed whenever it is looked for.
    """
    for _ in range(LOOKS):
        with contextlib.suppress(FileNotFoundError):
            return _disk_of_what_stays(folder, most)
    return most + 1


def _disk_of_what_stays(folder: Path, most: int) -> int:
    """Add up the same once.

    Raises:
        FileNotFoundError: a folder is no longer where it was a moment ago.
    """
    taken = 0

    def hides(error: OSError) -> None:
        nonlocal taken
        if error.errno in _HIDDEN:
            taken = most + 1
        elif error.errno == errno.ENOENT and error.filename != str(folder):  # which goes with the sandbox
            raise error

    for place, folders, names in walk(folder, onerror=hides):
        for name in (*folders, *names):
            with contextlib.suppress(OSError):
                taken += AN_ENTRY + os.lstat(os.path.join(place, name)).st_blocks * 512
        if taken > most:
            break
    return taken


def descendants(first: int) -> list[Path]:
    """List the folders in /proc of a process and of all that it and they have started.

    Raises:
        ProcessLookupError: it has ended.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            state, parent, *_ = _stat(Path("/proc", str(int(name))))
            if state != "Z" or int(name) != first:
                children.setdefault(int(parent), []).append(int(name))
    found = [first] if any(first in own for own in children.values()) else []
    for pid in found:  # which grows meanwhile
        found += children.get(pid, [])
    if not found:
        raise ProcessLookupError(f"process {first} has ended")
    return [Path(f"/proc/{pid}") for pid in found]
