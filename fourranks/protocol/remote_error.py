"""What a rank tells the notebook of an exception that was raised there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteError:
    """An exception that was raised on a rank, as text."""

    name: str  # of the exception's class
    message: str
    traceback: str  # as IPython formats it, with the cell's own lines
    undefined: str = ""  # the name that a NameError misses
    data: object = None  # of an `ErrorWithData`


class ErrorWithData(Exception):
    """An exception that takes data along when it leaves the rank.

    Attributes:
        data: what the notebook is to know of it; plain data, which may be unpickled in a sandbox, too.
    """

    def __init__(self, message: str, data: object) -> None:
        super().__init__(message, data)
        self.data = data

    def __str__(self) -> str:
        return str(self.args[0])
