"""The line at which a fatal signal has ended a rank: what Python's faulthandler wrote down of it.

It writes to a file that the zygote keeps, as the rank can tell nothing any more. In the sandbox a student may
write anything there: it names a line, and no file is opened that it speaks of.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal

from ..protocol import memory
from ..protocol.places import Line
from .frames import Owner, owner_of

_SIGNALS = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
_SIZE = 2**14  # bytes of a file, for good: its content is on no rank's account
_BEGIN = "Fatal Python error"
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def new_report() -> int:
    """Make a file for a rank that is about to be forked; returns its descriptor."""
    return memory.create(_SIZE)


def write_to(descriptor: int) -> None:
    """Have this process write to the file of this descriptor where a fatal signal ends it."""
    faulthandler.enable(descriptor, all_threads=False)


def line_of(status: int, descriptor: int) -> Line | None:
    """Return the reader's line that a process was in when it ended, if it is known.

    Args:
        status: as from os.waitpid.
        descriptor: of the file that the process may have written to. Its own children write there, too.
    """
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) not in _SIGNALS:
        return None
    text = os.pread(descriptor, _SIZE, 0).decode(errors="replace")
    for file, line, function in _FRAME.findall(text.rpartition(_BEGIN)[2]):
        if owner_of(file) is Owner.READER:
            return Line(file, int(line), function)
    return None
