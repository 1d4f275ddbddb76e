"""The version of Landlock in this Linux, by which the grader's sandbox keeps ranks apart."""

from __future__ import annotations

import ctypes

NEEDED = 2  # the version of Linux 5.19
KEEPS_SIGNALS = 6  # the version of Linux 6.12: processes may be kept from signalling others
CREATE_RULESET = 444  # a system call; the same on all machines
_ASK_VERSION = 1


def version() -> int:
    """Return the version of Landlock; 0 if there is none."""
    answer: int = ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, _ASK_VERSION)
    return max(0, answer)
