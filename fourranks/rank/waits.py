"""Waits for calls whose wait Gloo does not end when the connections of the group do.

Receives from any source, and transfers in the middle of which a connection ends: Gloo tells all calls of it
but the one whose bytes are on their way. A message is waited for in a thread, as Gloo ends it when a wait for
it times out; the caller waits for that thread, where an interrupt and `give_up` reach it, and the thread may
be left behind. A collective is waited for again and again, for a moment each time.
"""

from __future__ import annotations

import queue
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from ..protocol.calls import Call
from .threads import Helper

NO_LIMIT = timedelta(0)  # torch's way to say so
FOREVER = timedelta(minutes=5)  # and longer: no limit; the shortest of torch's defaults, of its stores
MOMENT = timedelta(milliseconds=100)
LARGE = 32 * 2**20  # bytes of a message: its transfer takes long enough for a thread to add little

_under_way: set[queue.SimpleQueue[Exception | None]] = set()
_times_given_up = 0


def wait(call: Call, work: dist.Work, limit: timedelta = NO_LIMIT) -> None:
    """Wait until a call is over, in a way that can be ended."""
    from_any_source = call.op == "recv" and call.peer is None
    if not from_any_source and torch.cuda.is_initialized():
        work.wait(limit)  # for the stream of its own thread
    elif from_any_source or (call.is_point_to_point and call.nbytes >= LARGE):
        _wait_in_a_thread(work, limit)
    elif call.is_point_to_point or limit > NO_LIMIT:
        work.wait(limit)
    else:
        _wait_in_moments(work)


def _wait_in_moments(work: dist.Work) -> None:
    given_up_before = _times_given_up
    while True:
        begun = time.monotonic()
        try:
            work.wait(MOMENT)
            return
        except RuntimeError:  # the moment is over, or the call has failed
            if time.monotonic() - begun < MOMENT.total_seconds():
                raise  # a reduce-scatter of Gloo never says of itself that it is completed
        if work.is_completed():
            work.wait()
            return
        if _times_given_up > given_up_before:
            raise _closed()


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
    global _times_given_up
    _times_given_up += 1
    for outcome in list(_under_way):
        outcome.put(_closed())


def _closed() -> Exception:
    return RuntimeError("gloo/transport: the connections of the process group were closed")
