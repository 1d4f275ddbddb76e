"""Ctrl-C while messages go to and from ranks: noted, and asked for where it does no harm."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C (Jupyter's interrupt button) raise nothing within this block, which asks whether it came.

    The answer is True once for each interrupt. A KeyboardInterrupt at an arbitrary place would leave messages
    half sent and ranks running.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    def interrupted() -> bool:
        nonlocal count
        came, count = count > 0, 0
        return came

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
