"""Makes Gloo's process groups in a way that an interrupt can end.

Gloo connects the ranks of a group in C++, which no interrupt reaches. A rank whose peer has died in the
meantime waits for a connection that never comes, and there is no connection yet that could be cut.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from .recorder import Recorder
from .threads import Helper

T = TypeVar("T")
_TAG, _MILLISECOND = 2**30, timedelta(milliseconds=1)  # of a message that is never sent


class _PythonStore(Store):
    """A store whose users in C++ come through Python, and so to the functions of `stores`."""

    def __init__(self, inner: Store) -> None:
        super().__init__()
        self.inner = inner


def _through_python(name: str) -> Callable[..., Any]:
    def method(self: _PythonStore, *args: Any) -> Any:
        return getattr(self.inner, name)(*args)

    return method


for _name in ("set", "get", "wait", "check", "add", "compare_set", "delete_key", "num_keys"):
    setattr(_PythonStore, _name, _through_python(_name))
_kept: WeakKeyDictionary[dist.ProcessGroupGloo, _PythonStore] = WeakKeyDictionary()  # C++ does not keep it
_left_behind: list[Future[Any]] = []  # of threads that an interrupt has left running


def interruptible(make: Callable[..., None], recorder: Recorder) -> Callable[..., None]:
    """Wrap `ProcessGroupGloo.__init__` so that interrupts can end it."""

    @functools.wraps(make)
    def make_group(group: dist.ProcessGroupGloo, store: Store, *args: Any, **kwargs: Any) -> None:
        if recorder.blocked.has_this_thread():  # torch makes it, for a group that is noted already
            in_a_thread(functools.partial(make, group, store, *args, **kwargs))
        else:  # made by hand: its waits for keys are noted one by one
            _kept[group] = _PythonStore(store)
            make(group, _kept[group], *args, **kwargs)

    return make_group


def fail_calls(group: dist.ProcessGroup) -> None:
    """Make all calls of a Gloo group fail whose connections have been cut, to no avail.

    Where a message arrives for a call that has failed, Gloo reads no further and does not notice the end of
    the connection, so other calls go on waiting for it. A receive that times out makes Gloo close all
    connections of the group and tell their calls. Blocks for milliseconds.
    """
    for peer in range(group.size()):
        with contextlib.suppress(RuntimeError, ValueError):  # closed already, or the rank itself
            group.recv([torch.empty(1)], peer, _TAG).wait(_MILLISECOND)


def take_left_behind() -> bool:
    """Tell whether an interrupt has left a group half made since the last call of this function."""
    half_made = [end for end in _left_behind if not end.done()]
    _left_behind.clear()
    return bool(half_made)


def in_a_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and wait for it; an interrupt ends the wait and leaves the thread running."""
    end: Future[T] = Future()

    def run() -> None:
        try:
            end.set_result(work())
        except BaseException as error:
            end.set_exception(error)

    Helper(target=run, name="fourranks group").start()
    try:
        return end.result()
    except KeyboardInterrupt:
        _left_behind.append(end)
        raise
