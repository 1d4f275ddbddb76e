"""Waits for calls whose wait Gloo does not end when the connections of the group do.

These are receives from any source, and transfers in the middle of which a connection ends: Gloo tells all
calls of it but the one whose bytes are on their way. Such a wait goes on in a thread of its own, and the
caller waits for that thread, where an interrupt and `give_up` reach it. The thread may be left behind.
"""

from __future__ import annotations

import queue
from datetime import timedelta

import torch
import torch.distributed as dist

from ..protocol.calls import Call
from .threads import Helper

NO_LIMIT = timedelta(0)  # torch's way to say so
LARGE = 32 * 2**20  # bytes: their transfer takes long enough for a thread to add little

_under_way: set[queue.SimpleQueue[Exception | None]] = set()


def wait(call: Call, work: dist.Work, limit: timedelta = NO_LIMIT) -> None:
    """Wait until a call is over, in a way that can be ended."""
    from_any_source = call.op == "recv" and call.peer is None
    if from_any_source or (call.nbytes >= LARGE and not torch.cuda.is_initialized()):
        _wait_in_a_thread(work, limit)
    else:  # on a GPU, a wait is for the stream of its own thread
        work.wait(limit)


def _wait_in_a_thread(work: dist.Work, limit: timedelta) -> None:
    outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def wait() -> None:
        try:
            work.wait(limit)
        except Exception as error:
            outcome.put(error)
        else:
            outcome.put(None)

    _under_way.add(outcome)
    try:
        Helper(target=wait, name="fourranks wait").start()
        error = outcome.get()
    finally:
        _under_way.discard(outcome)
    if error is not None:
        raise error.with_traceback(None)


def give_up() -> None:
    """Make these waits fail, as others do when their connections end."""
    for outcome in list(_under_way):
        outcome.put(RuntimeError("gloo/transport: the connections of the process group were closed"))
