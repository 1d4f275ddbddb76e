"""Waits for keys and queues of a store, as `store.get` does, noted and open to interrupts.

Torch waits for a key in C++, where no interrupt reaches it. In a rank these functions look for the key time
and again instead, and so does the making of a TCPStore that waits for its server or its workers.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store, TCPStore

from .describe import call_on
from .recorder import Recorder
from .waits import FOREVER

DEFAULT_TIMEOUT = timedelta(seconds=300)  # of torch's stores
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05  # seconds between two looks
_MILLISECOND = timedelta(milliseconds=1)
_WORKERS = "init/"  # the key under which a TCPStore counts its workers
_NO_VALUE = os.urandom(16).hex()  # no key has it as its value
_TORCHS_OWN = (FileStore, HashStore, TCPStore)

_wait, _get, _multi_get, _queue_pop = Store.wait, Store.get, Store.multi_get, Store.queue_pop
_make_tcp_store = TCPStore.__init__


def noted_waits(recorder: Recorder) -> dict[str, Callable[..., Any]]:
    """Return methods of `Store`, by name, whose waits for keys are noted.

    A store that the reader has written in Python decides itself how it waits, and may have no `check`.
    """

    @functools.wraps(_wait)
    def wait(store: Store, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        if _is_torchs_own(store):
            with _noted(recorder, "wait", store, timeout):
                _look_for(store, keys, timeout or _timeout(store))
        elif timeout is None:
            _wait(store, list(keys))
        else:
            _wait(store, list(keys), timeout)

    @functools.wraps(_get)
    def get(store: Store, key: str) -> bytes:
        if not _is_torchs_own(store):
            return _get(store, key)
        with _noted(recorder, "get", store):
            return _value_of(store, key, _timeout(store))

    @functools.wraps(_multi_get)
    def multi_get(store: Store, keys: Sequence[str]) -> list[bytes]:
        if _is_torchs_own(store):
            with _noted(recorder, "multi_get", store):
                _look_for(store, keys, _timeout(store))
        return _multi_get(store, list(keys))

    @functools.wraps(_queue_pop)
    def queue_pop(store: Store, key: str, block: bool = True) -> bytes:
        if not block:
            return _queue_pop(store, key, False)
        with _noted(recorder, "queue_pop", store):
            return _taken_from_queue(store, key, _timeout(store))

    return {"wait": wait, "get": get, "multi_get": multi_get, "queue_pop": queue_pop}


def _timeout(store: Store) -> timedelta:
    return store.timeout  # type: ignore[attr-defined, no-any-return]  # torch's description lacks it


def _innermost(store: Store) -> Store:
    """Return the store that keeps what is set, behind those that only put a prefix before its keys."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def _is_torchs_own(store: Store) -> bool:
    return isinstance(_innermost(store), _TORCHS_OWN)


def _is_of_ranks_alone(store: Store) -> bool:
    """Tell whether only ranks of this world set its keys: one made by hand may be shared with any process."""
    store = _innermost(store)
    is_rendezvous = isinstance(store, TCPStore) and str(store.port) == os.environ["MASTER_PORT"]
    return is_rendezvous or isinstance(store, HashStore)


@contextlib.contextmanager
def _noted(recorder: Recorder, method: str, store: Store, limit: timedelta | None = None) -> Iterator[None]:
    """Have it known that this thread waits for a key, which any other rank may set."""
    if recorder.blocked.has_this_thread():  # as one that makes a group, for instance
        yield
        return
    call = call_on(f"store.{method}", "store", tuple(range(int(os.environ["WORLD_SIZE"]))))
    recorder.number(call)
    forever = (limit or _timeout(store)) >= FOREVER and _is_of_ranks_alone(store)
    begun = recorder.begin_wait(call if forever else None)
    try:
        yield
    finally:
        recorder.end_wait(call, begun)


def _look_for(store: Store, keys: Sequence[str], timeout: timedelta) -> None:
    """Return when the store has these keys; raise what torch raises when the time is over."""
    if not _poll(lambda: store.check(list(keys)), timeout):
        _look_once_more(store, keys, timeout)


def _value_of(store: Store, key: str, timeout: timedelta) -> bytes:
    """Return the value of a key once there is one.

    It is looked for and read in one step: another rank may delete the key at any moment, and torch's `get`
    would then wait for it in C++.
    """
    read: list[bytes] = []

    def look() -> bool:
        value = store.compare_set(key, _NO_VALUE, _NO_VALUE)
        read.extend([value] if value != _NO_VALUE.encode() else [])
        return bool(read)

    if not _poll(look, timeout):
        _look_once_more(store, [key], timeout)
    return read[0] if read else _get(store, key)


def _taken_from_queue(store: Store, key: str, timeout: timedelta) -> bytes:
    """Return the first value of this queue once it has one; other ranks may take from it, too."""
    taken: list[bytes] = []

    def take() -> bool:
        with contextlib.suppress(dist.QueueEmptyError):
            taken.append(_queue_pop(store, key, False))
        return bool(taken)

    if not _poll(take, timeout):
        raise dist.DistStoreError(f"wait timeout after {timeout.total_seconds() * 1000:.0f}ms, keys: {key}")
    return taken[0]


def _poll(is_there: Callable[[], bool], timeout: timedelta) -> bool:
    deadline, pause = time.monotonic() + timeout.total_seconds(), FIRST_PAUSE
    while not is_there():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(1.1 * pause, LONGEST_PAUSE)
    return True


def _look_once_more(store: Store, keys: Sequence[str], timeout: timedelta) -> None:
    """Raise what torch raises at the end of this timeout, unless the store has the keys by now."""
    try:
        _wait(store, list(keys), _MILLISECOND)
    except RuntimeError as error:
        milliseconds = round(timeout.total_seconds() * 1000)
        message = re.sub(r"after \d+( ?)ms", rf"after {milliseconds}\1ms", str(error))
        raise type(error)(message) from None


@functools.wraps(_make_tcp_store)
def make_tcp_store(
    store: TCPStore,
    host_name: str,
    port: int,
    world_size: int | None = None,
    is_master: bool = False,
    timeout: timedelta = DEFAULT_TIMEOUT,
    wait_for_workers: bool = True,
    **kwargs: Any,
) -> None:
    patience = timeout
    if not is_master and not _poll(functools.partial(_answers, host_name, port), timeout):
        patience = timedelta(seconds=1)
    _make_tcp_store(store, host_name, port, world_size, is_master, patience, False, **kwargs)
    if wait_for_workers and world_size is not None:
        store.add(_WORKERS, 1)
        if is_master and not _poll(lambda: store.add(_WORKERS, 0) >= world_size, timeout):
            raise dist.DistStoreError(
                f"Timed out after {timeout.total_seconds():g} seconds waiting for clients. "
                f"{store.add(_WORKERS, 0)}/{world_size} clients joined."
            )


def _answers(host_name: str, port: int) -> bool:
    try:
        socket.create_connection((host_name, port), timeout=1).close()
        return True
    except OSError:
        return False
