"""An exception that was raised on a rank, as the rank tells the notebook of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """Return the text without terminal colours."""
    return _ANSI.sub("", text)


@dataclass(frozen=True)
class RemoteError:
    """An exception that was raised on a rank, as text."""

    name: str  # of the exception's class
    message: str
    traceback: str  # as IPython formats it, with the cell's own lines
    undefined: str = ""  # the name that a NameError misses
    data: object = None  # of an `ErrorWithData`

    @property
    def is_exit(self) -> bool:
        """Whether `sys.exit` has raised it."""
        return self.name == "SystemExit"

    @property
    def is_exit_status(self) -> bool:
        """Whether `sys.exit` has raised it, and was given a number."""
        return self.is_exit and self.message.removeprefix("-").isdecimal()

    @property
    def exit_status(self) -> int:
        """The exit status that Python gives a process that ends with it."""
        return int(self.message) & 0xFF if self.is_exit_status else 1


class ErrorWithData(Exception):
    """An exception that takes data along when it leaves the rank.

    Attributes:
        data: further facts for the notebook; plain data, which may be unpickled in a sandbox, too.
    """

    def __init__(self, message: str, data: object) -> None:
        super().__init__(message, data)
        self.data = data

    def __str__(self) -> str:
        return str(self.args[0])
