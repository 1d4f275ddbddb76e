"""Runs the machine's own tools, which may be missing, fail or hang."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from typing import IO

PATIENCE = 20.0  # seconds; nvidia-smi takes some when no process holds the driver open

_stuck: set[str] = set()  # paths of tools that did not answer: waiting for them once is enough


class NoAnswer(Exception):
    """A tool gave no usable answer; the message says why."""


def ask(*command: str, patience: float = PATIENCE) -> str:
    """Return what a command prints.

    Raises:
        NoAnswer: it is not there, failed, or did not end in time.
    """
    path = shutil.which(command[0])
    if path is None:
        raise NoAnswer(f"{command[0]} was not found")
    if path in _stuck:
        raise NoAnswer(f"{command[0]} did not answer an earlier call")
    with tempfile.TemporaryFile() as output:
        code = _run(path, command, output, patience)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if code:
        raise NoAnswer(f"{command[0]} failed: {text.splitlines()[0] if text else f'exit code {code}'}")
    return text


def _run(path: str, command: tuple[str, ...], output: IO[bytes], patience: float) -> int:
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    except OSError as error:
        raise NoAnswer(f"{command[0]} cannot be run: {error.strerror}") from None
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        _stuck.add(path)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # inside a driver it cannot be killed
            process.wait(1)
        raise NoAnswer(f"{command[0]} did not answer within {patience:g} s") from None
