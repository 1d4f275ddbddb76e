"""Errors for calls of process groups that can carry out no call any more."""

from __future__ import annotations

from ..protocol.calls import Call
from ..protocol.places import place


def in_a_fork(call: Call) -> RuntimeError:
    """Return the error for a call in a process that was forked since the group was made.

    The threads that carry out the group's calls were not.
    """
    return RuntimeError(
        f"{call.name} was called in a process that a rank has forked ({place(*call.at)}), as workers "
        "of a DataLoader are. It would never end there: call it in the rank itself."
    )


def of_before(call: Call) -> RuntimeError:
    """Return the error for a call of a group that was made before the default group was formed again."""
    return RuntimeError(
        f"{call.name} was called ({place(*call.at)}) on a process group from before the default group was "
        "formed again. Make what holds it again, such as a model in DistributedDataParallel."
    )
