"""Notes which calls a thread waits for when it waits for a future: `work.get_future().wait()`, `wait_all`.

A future of torch is a C++ object, and so are those that `then` and `collect_all` make of it. In a rank these
functions are wrapped, so that it is known which calls a future comes from.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .backward import Awaited
from .recorder import Recorder

_awaited: WeakKeyDictionary[torch._C.Future[Any], Awaited] = WeakKeyDictionary()


def comes_from(future: torch._C.Future[Any], awaited: Awaited) -> None:
    """Note the calls that this future waits for."""
    _awaited[future] = awaited


def recorded_wait(wait: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Wrap `Future.wait` so that the wait is noted."""

    @functools.wraps(wait)
    def recorded(future: torch._C.Future[Any]) -> Any:
        awaited = _awaited.get(future)
        if awaited is not None and not future.done():
            begun = recorder.begin_wait(awaited)
            try:
                _come(future)
            finally:
                recorder.end_waits(awaited, begun, future.done())
        else:
            _come(future)
        recorder.note_ends(awaited or [])  # also of calls that were over before anybody waited
        return wait(future)

    return recorded


def _come(future: torch._C.Future[Any]) -> None:
    """Return when the future is complete; an interrupt does not reach the wait in C++, but this one."""
    if not future.done():
        completed = threading.Lock()
        completed.acquire()
        future.add_done_callback(lambda _: completed.release())
        completed.acquire()


def traced(make: Callable[..., torch._C.Future[Any]], sources: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it notes the calls that the future it makes comes from."""

    @functools.wraps(make)
    def noted(*args: Any) -> torch._C.Future[Any]:
        future = make(*args)
        awaited = [pair for source in sources(*args) for pair in _awaited.get(source, ())]
        if awaited:
            comes_from(future, awaited)
        return future

    return noted
