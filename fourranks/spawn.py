"""Starts a rank as a fresh Python process, where a fork of the warm one will not do.

On macOS, system libraries refuse to work in a forked process, and some libraries of the reader's may do so
anywhere. The zygote forks all the same, and its child calls `execute` at once, which replaces it by
`fourranks.spawn` as a program: sessions, deaths and everything else about the process stay as they are.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from typing import NoReturn

from .new_process import command
from .protocol import memory
from .protocol.channel import Channel
from .protocol.messages import Settings


def execute(
    settings: Settings, control: int, board: int, listener: int | None, crash_report: int
) -> NoReturn:
    """Become a fresh Python process, and a rank in it. The first arguments are those of `become_rank`.

    Args:
        crash_report: the descriptor that a crash is described to.
    """
    arguments = memory.create()
    with open(arguments, "wb", closefd=False) as file:
        pickle.dump((settings, control, board, listener, crash_report), file)
    for descriptor in (arguments, control, board, listener, crash_report):
        if descriptor is not None:
            os.set_inheritable(descriptor, True)
    # Any number will do that all ranks have: they compare hashes, and so may the reader.
    environment = {"PYTHONHASHSEED": str(os.getppid())} | os.environ
    os.execve(sys.executable, command("fourranks.spawn", str(arguments)), environment)


def main(arguments: int) -> None:
    """Become the rank that `execute` has described."""
    os.lseek(arguments, 0, os.SEEK_SET)
    with open(arguments, "rb") as file:
        settings, control, board, listener, crash_report = pickle.load(file)
    from .rank import crash  # torch and the rest
    from .rank.main import become_rank

    crash.write_to(crash_report)
    become_rank(settings, Channel(socket.socket(fileno=control), blocking=True), board, listener)


if __name__ == "__main__":
    main(int(sys.argv[1]))
