"""Ends a process that the reader's code has forked where that code ends: the rank alone answers for it."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ..protocol.remote_error import RemoteError, plain
from . import files


def end(error: RemoteError | None) -> NoReturn:
    """End this process as Python ends one, with the error that its code has ended with, if any."""
    if error is not None and not error.is_exit_status:
        text = error.message if error.is_exit else plain(error.traceback)
        sys.stderr.write(f"{text}\n")
    files.write_out()
    os._exit(error.exit_status if error is not None else 0)
