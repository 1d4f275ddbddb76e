"""Disks for exercise 04's checkpoints that are slow, full, or lost in the middle of writing.

The faults are real ones: the kernel refuses to write beyond RLIMIT_FSIZE, or ends the process that tries.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

_SYNCS = [getattr(os, name) for name in ("fsync", "fdatasync", "sync") if hasattr(os, name)]
_NAMES_A_FILE = ("os.rename", "os.link")  # events; os.replace is the first, too
SLOW = 0.1  # seconds that writing takes longer on a slow disk: a rank that does not wait is back long before


class SecondWriter(Exception):
    """A rank other than 0 writes a file."""


def identity(path: str | Path) -> tuple[int, int]:
    """Tell which file it is, whatever its name, and how much has been written to it."""
    status = os.stat(path)
    return status.st_ino, status.st_size


@contextlib.contextmanager
def note_what_reaches_the_disk(path: str, on_disk: set[tuple[int, int]]) -> Iterator[None]:
    """Add the files near `path` that the disk is made to take before one of them gets this name."""
    _hear_of_files()
    _watches.append(_WatchedFiles(Path(path), on_disk))
    threading.setprofile(_hear_of_calls)  # of threads that are started from now on
    sys.setprofile(_hear_of_calls)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        _watches.clear()


@dataclass
class _WatchedFiles:
    """The notes, and the files that were opened such that each write waits for the disk."""

    path: Path
    on_disk: set[tuple[int, int]]
    written_through: set[Path] = field(default_factory=set)

    def note(self, files: Iterable[Path]) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # another thread has just removed it
                if file != self.path:
                    self.on_disk.add(identity(file))


_watches: list[
    _WatchedFiles
] = []  # that are under way, for threads that an earlier one has begun to listen to


def _hear_of_calls(_: object, event: str, function: object) -> None:
    if event == "c_call" and function in _SYNCS:
        for watch in _watches:
            watch.note(watch.path.parent.rglob("*"))


@functools.cache
def _hear_of_files() -> None:
    sys.addaudithook(_hear_of_a_file)


def _hear_of_a_file(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _watches:
        if event == "open" and arguments[2] & (os.O_SYNC | os.O_DSYNC):
            watch.written_through.add(Path(os.fsdecode(arguments[0])).absolute())
        elif event in _NAMES_A_FILE:
            watch.note(watch.written_through)


@contextlib.contextmanager
def slow_disk() -> Iterator[None]:
    """Let torch.save take longer."""
    save = torch.save

    def slow(*arguments: Any, **options: Any) -> None:
        save(*arguments, **options)
        time.sleep(SLOW)

    with mock.patch.object(torch, "save", slow):
        yield


@contextlib.contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    """Let no file become larger, as on a disk that is full: writing more raises an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def nothing_written() -> Iterator[None]:
    """Raise SecondWriter when anything is written to a file."""
    attempts: list[None] = []
    previous = signal.signal(signal.SIGXFSZ, lambda *_: attempts.append(None))
    try:
        with file_size_limit(0), mock.patch.object(sys, "dont_write_bytecode", True):
            yield
    finally:
        signal.signal(signal.SIGXFSZ, previous)
        if attempts:
            raise SecondWriter(f"rank {dist.get_rank()} writes, too")


def die_at(moment: str, nbytes: int) -> None:
    """Have this process killed while it writes.

    Args:
        moment: "writing" is when a file has got `nbytes`; "renaming" is just before one gets a new name.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if moment == "writing":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    else:
        sys.addaudithook(_die_when_a_file_is_renamed)


def _die_when_a_file_is_renamed(event: str, _: tuple[Any, ...]) -> None:
    if event == "os.rename":
        os.kill(os.getpid(), signal.SIGKILL)
