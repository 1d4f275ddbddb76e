"""Disks for exercise 04's checkpoints that are slow, full, or lost in the middle of writing.

The faults are real ones: the kernel refuses to write beyond RLIMIT_FSIZE, or ends the process that tries.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

SLOW = 0.1  # seconds that writing takes longer on a slow disk: a rank that does not wait is back long before


class SecondWriter(Exception):
    """A rank other than 0 writes a file."""


def identity(path: str | Path) -> tuple[int, int]:
    """Tell which file it is, whatever its name, and how much has been written to it."""
    status = os.stat(path)
    return status.st_ino, status.st_size


@contextlib.contextmanager
def note_what_reaches_the_disk(path: str, on_disk: set[tuple[int, int]]) -> Iterator[None]:
    """Add the files next to `path` that the disk is made to take before one of them gets this name."""

    def note(_: object, event: str, function: object) -> None:
        if event == "c_call" and function in (os.fsync, os.fdatasync, os.sync):
            others = [other for other in Path(path).parent.glob("*") if other != Path(path)]
            on_disk.update(map(identity, others))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


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
    if event == "os.rename":  # os.replace is one too
        os.kill(os.getpid(), signal.SIGKILL)
