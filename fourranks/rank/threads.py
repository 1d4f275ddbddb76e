"""Which threads of a rank may still communicate, and which only wait.

A thread that computes, sleeps or reads a file may call a collective at any moment, so the rank is not stuck
while there is one. These threads do not count: threads of this package, idle workers of a pool, threads that
wait without a limit for another thread, and threads of libraries that know nothing of torch, such as tqdm's
monitor. A thread that waits for what a pool's processes send does: it wakes others when that comes.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch

from .frames import Owner, in_native_code, owner

_THREADING = threading.__file__
# Threads of the standard library that only hand on work, or have none.
_HAS_NO_WORK = ("concurrent/futures/thread.py", "_worker")
_HAND_ON_WORK = {
    ("multiprocessing/pool.py", "worker"),
    ("multiprocessing/pool.py", "_handle_tasks"),
    ("multiprocessing/pool.py", "_handle_workers"),
    ("multiprocessing/pool.py", "_handle_results"),
    ("multiprocessing/queues.py", "_feed"),
    ("multiprocessing/resource_sharer.py", "_serve"),  # of tensors sent to other processes
    ("concurrent/futures/process.py", "wait_result_broken_or_wakeup"),
}
# Functions that wait for another thread of the process, and how their argument says "without a limit".
_WAITS = {"wait": None, "join": None, "_wait_for_tstate_lock": -1}


class Helper(threading.Thread):
    """A thread of this package: it ends with the process and never communicates in the reader's name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, daemon=True, **kwargs)


def main_thread() -> int:
    """Return the identifier of the main thread."""
    identifier = threading.main_thread().ident
    assert identifier is not None, "the main thread has been started"
    return identifier


@dataclass(frozen=True)
class Standing:
    """The activity of a rank's threads, apart from those that wait in a recorded call."""

    at_work: bool  # one that may still communicate goes on
    parked: bool = False  # one waits for another thread, which C++ code may wake when a call completes
    in_native_code: bool = False  # the main thread sleeps where C++ code waits for calls


def standing(waiting: Set[int], busy: bool, asleep: bool) -> Standing:
    """Look at all threads of this process.

    Args:
        waiting: threads that wait in a recorded call, by their identifier.
        busy: whether the main thread runs the reader's code.
        asleep: whether the process has hardly used a processor lately.
    """
    main = main_thread()
    helpers = {thread.ident for thread in threading.enumerate() if isinstance(thread, Helper)}
    frames = {
        thread: frame
        for thread, frame in sys._current_frames().items()
        if thread not in waiting and thread not in helpers and (busy or thread != main)
    }
    idle = {thread for thread, frame in frames.items() if thread != main and _is_idle(frame)}
    native = asleep and main in frames and in_native_code(frames[main])
    still = idle | {main} if native else idle
    parked = {
        thread
        for thread, frame in frames.items()
        if thread not in still and _is_parked(frame) and not (thread == main and _alarm_is_set())
    }
    at_work = any(
        thread == main or _may_communicate(frame, bool(parked))
        for thread, frame in frames.items()
        if thread not in still | parked
    )
    return Standing(at_work or _any_runs(still | parked), bool(parked), native)


def _any_runs(threads: Set[int]) -> bool:
    """Tell whether one of these threads goes on after all, or another one is being started.

    Where processors are busy, a thread that is woken or started has to wait for one. Until then it stands
    where it stood, or nowhere.
    """
    return any(
        thread.ident is None or (thread.ident in threads and _state(thread) != "S")
        for thread in threading.enumerate()
    )


def _state(thread: threading.Thread) -> str:
    """Return the letter by which Linux tells what a thread does, "S" if it sleeps."""
    is_main = thread is threading.main_thread()  # after a fork its number here is still the old one
    number = os.getpid() if is_main else thread.native_id
    try:
        return Path(f"/proc/self/task/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has just ended, or this is another system
        return "S"


def _is_parked(frame: FrameType) -> bool:
    """Tell whether a thread waits without a limit until another thread of the process wakes it."""
    code = frame.f_code
    if code.co_filename != _THREADING or code.co_name not in _WAITS:
        return False
    return frame.f_locals.get("timeout") in (None, _WAITS[code.co_name])


def _alarm_is_set() -> bool:
    """Tell whether a signal is to come, whose handler may end a wait of Python's own in the main thread."""
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _may_communicate(frame: FrameType, may_wake: bool) -> bool:
    """Tell whether a thread that goes on may come to a collective.

    Args:
        frame: the innermost frame of the thread.
        may_wake: whether another thread waits to be woken, perhaps by this one.
    """
    others = [each for each in _stack(frame) if owner(each) is not Owner.PYTHON]
    if not others or may_wake:  # a timer, or an event loop: there is no telling what it runs next
        return True
    return any(
        owner(each) in (Owner.READER, Owner.TORCH) or (owner(each) is Owner.LIBRARY and _knows_torch(each))
        for each in others
    )


def _is_idle(frame: FrameType) -> bool:
    """Tell whether this is a thread of the standard library that has nothing to do but to hand on work."""
    if _is_function(frame, *_HAS_NO_WORK):
        return True
    return any(
        _is_function(each, *function) and not _has_work(frame, each)
        for each in itertools.takewhile(_is_pythons, _stack(frame))
        for function in _HAND_ON_WORK
    )


def _has_work(frame: FrameType, function: FrameType) -> bool:
    """Tell whether this function of a pool runs a task, or reads results that processes are still to send."""
    if function.f_code.co_name == "worker":
        return function.f_locals.get("task") is not None
    if function.f_code.co_name == "wait_result_broken_or_wakeup":
        return bool(function.f_locals["self"].pending_work_items)
    is_reading = function.f_code.co_name == "_handle_results" and frame is not function  # not from threads
    return is_reading and bool(function.f_locals["cache"])


def _is_function(frame: FrameType, file: str, name: str) -> bool:
    return frame.f_code.co_name == name and frame.f_code.co_filename.endswith(file)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_pythons(frame: FrameType) -> bool:
    return owner(frame) is Owner.PYTHON


def _knows_torch(frame: FrameType) -> bool:
    """Tell whether the module of this function has torch, or something of torch, among its names."""
    for value in list(frame.f_globals.values()):
        if isinstance(value, (ModuleType, FunctionType, type)):
            name = value.__name__ if isinstance(value, ModuleType) else str(value.__module__)
            if name.partition(".")[0] == torch.__name__:
                return True
    return False
