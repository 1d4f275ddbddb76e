"""Interrupts of a rank: `KeyboardInterrupt` in the reader's code, and nowhere else.

`main` asks for one when the notebook says so. An import under way is left to end first.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from .frames import Owner, owner
from .telling import exception_under_way
from .threads import main_thread

IMPORT_TICK = 0.05  # seconds between looks at an import whose end an interrupt waits for
IMPORT_PATIENCE = 3.0  # seconds that it waits for a module of the reader's, which may be a whole program
LIBRARY_PATIENCE = 30.0  # the same for a library: torch._dynamo takes ten on a busy machine


def _import_patience(frame: FrameType | None) -> float:
    """Return the seconds that an interrupt waits for an import to end, if this frame belongs to one."""
    patience = LIBRARY_PATIENCE
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        if owner(frame) is Owner.READER:
            patience = IMPORT_PATIENCE
        frame = frame.f_back
    return patience if frame is not None else 0.0


def _raise_in(thread: int) -> None:
    """Raise KeyboardInterrupt in a thread, as soon as it runs Python's code."""
    exception = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


class Interrupts:
    """Turns SIGINT into KeyboardInterrupt, but only where the reader's code can take it.

    A KeyboardInterrupt in the middle of a message would tear it, so sending is shielded and the interrupt is
    raised behind it.
    """

    def __init__(self) -> None:
        self._postponed = False  # by an import of the running code
        self._signalled = False  # and Python has not heard of it: the main thread is in C code
        self._has_asked = False  # a handler of the running code
        self._awaits_import = False
        self._in_user_code = False
        self._shields = 0
        self._pending = False
        self._main = main_thread()
        signal.signal(signal.SIGINT, self._handle)

    @property
    def postponed(self) -> bool:
        """Whether an interrupt waits, or waited, for the end of an import or of one call of C code."""
        return self._postponed or (self._signalled and self._is_handled_here)

    @property
    def handled(self) -> bool:
        """Whether the main thread is in an `except` or a `finally` that a KeyboardInterrupt has led to."""
        error = exception_under_way()
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__context__
        return error is not None

    def request(self) -> None:
        """Interrupt the main thread, but not within an import: one that is cut short spoils the process."""
        if not self._awaits_import:
            self._interrupt(0.0)

    def _interrupt(self, waited: float) -> None:
        self._awaits_import = waited < _import_patience(sys._current_frames()[self._main])
        if self._awaits_import:
            self._postponed = True
            threading.Timer(IMPORT_TICK, self._interrupt, [waited + IMPORT_TICK]).start()
        elif self._is_handled_here or (callable(signal.getsignal(signal.SIGINT)) and not self._has_asked):
            self._signalled, self._has_asked = True, not self._is_handled_here
            signal.pthread_kill(self._main, signal.SIGINT)
        elif self._in_user_code:  # it has no handler of Python's, or one that does not end it
            _raise_in(self._main)

    @property
    def _is_handled_here(self) -> bool:
        return signal.getsignal(signal.SIGINT) == self._handle

    @contextlib.contextmanager
    def user_code(self) -> Iterator[None]:
        self._pending = self._postponed = self._signalled = self._has_asked = False
        self._in_user_code = True
        try:
            yield
        finally:
            self._in_user_code = False
            signal.signal(signal.SIGINT, self._handle)  # the code may have installed its own

    @contextlib.contextmanager
    def shield(self) -> Iterator[None]:
        if threading.get_ident() != self._main:
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if self._pending and not self._shields and self._in_user_code:
                self._pending = False
                raise KeyboardInterrupt

    def _handle(self, *_: Any) -> None:
        self._signalled = False
        if not self._in_user_code:
            return
        if self._shields:
            self._pending = True
        else:
            raise KeyboardInterrupt
