"""Finds processes by a mark in their environment, which all that they start inherits."""

import contextlib
from collections.abc import Iterator

import psutil


def marked(variable: str, mark: str) -> Iterator[psutil.Process]:
    """Yield the processes that this user may look at, and that have the mark in this variable.

    `psutil.process_iter` keeps what it finds: a process whose number another one had counts as ended there.
    """
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.environ().get(variable) == mark:
                yield process
