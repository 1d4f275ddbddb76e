"""Waits for messages from any source, which Gloo does not end when the connections of the group do.

Such a wait goes on in a thread of its own, and whoever wants the message waits for that thread, where an
interrupt and `give_up` reach it. A thread that gets no message is left behind.
"""

from __future__ import annotations

import queue
from datetime import timedelta

import torch.distributed as dist

from .threads import Helper

_under_way: set[queue.SimpleQueue[Exception | None]] = set()


def wait(work: dist.Work, timeout: timedelta) -> None:
    """Wait until the message of a receive has come."""
    outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def receive() -> None:
        try:
            work.wait(timeout)
        except Exception as error:
            outcome.put(error)
        else:
            outcome.put(None)

    _under_way.add(outcome)
    try:
        Helper(target=receive, name="fourranks receive").start()
        error = outcome.get()
    finally:
        _under_way.discard(outcome)
    if error is not None:
        raise error.with_traceback(None)


def give_up() -> None:
    """Make all waits fail, as those for other calls do when their connections end."""
    for outcome in list(_under_way):
        outcome.put(RuntimeError("gloo/transport: the connections of the process group were closed"))
