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

_awaited: WeakKeyDictionary[torch._C.Future, Awaited] = WeakKeyDictionary()


def comes_from(future: torch._C.Future, awaited: Awaited) -> None:
    """Note the calls that this future waits for."""
    _awaited[future] = awaited


def install(recorder: Recorder) -> None:
    """Have waits for futures noted in this process."""
    torch._C.Future.wait = _recorded_wait(torch._C.Future.wait, recorder)
    torch._C.Future.then = _traced(torch._C.Future.then, lambda future, *_: [future])
    torch._C._collect_all = _traced(torch._C._collect_all, lambda futures: futures)


def _recorded_wait(wait: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @functools.wraps(wait)
    def recorded(future: torch._C.Future) -> Any:
        awaited = _awaited.get(future)
        if awaited is not None and not future.done():
            begun = recorder.begin_wait(awaited)
            try:
                _come(future)
            finally:
                recorder.end_waits(awaited, begun, future.done())
        else:
            _come(future)
        return wait(future)

    return recorded


def _come(future: torch._C.Future) -> None:
    """Return when the future is complete; an interrupt does not reach the wait in C++, but this one."""
    if not future.done():
        completed = threading.Lock()
        completed.acquire()
        future.add_done_callback(lambda _: completed.release())
        completed.acquire()


def _traced(make: Callable[..., torch._C.Future], sources: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with a note of the calls that the future it makes comes from."""

    @functools.wraps(make)
    def traced(*args: Any) -> torch._C.Future:
        future = make(*args)
        awaited = [pair for source in sources(*args) for pair in _awaited.get(source, ())]
        if awaited:
            comes_from(future, awaited)
        return future

    return traced
