"""The calls that a rank has made and that are not complete, each with the handle or test that tells.

A handle of the backend holds the tensors of its call. So nothing here is kept for longer than its call takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ..protocol.calls import Call

FEW = 64  # calls that are not all looked at each time that one is added


class CallsUnderWay:
    """Calls that are not complete and that nothing has waited for, the oldest first. For any thread."""

    def __init__(self) -> None:
        self._open: dict[Call, tuple[Callable[[], bool], Callable[[], bool] | None]] = {}
        self._timers: dict[Call, Callable[[], float]] = {}
        self._most = FEW

    def add(
        self, call: Call, is_completed: Callable[[], bool], is_reached: Callable[[], bool] | None = None
    ) -> None:
        """Note that a call is under way.

        Args:
            call: the call.
            is_completed: tells whether it is over.
            is_reached: tells whether the GPU has done all that it was given before; None if unknown.
        """
        for oldest in list(self._open)[:1] if self._timers else ():  # which keep handles
            self.look_at(oldest)
        self._open[call] = is_completed, is_reached
        if len(self._open) > self._most:
            self._most = max(FEW, 2 * len(self.look()))  # to look at all each time takes long

    def replace(self, call: Call, is_completed: Callable[[], bool]) -> None:
        """Note what else tells from now on whether a call is over, if it is under way."""
        if found := self._open.get(call):
            self._open[call] = is_completed, found[1]

    def time(self, call: Call, seconds: Callable[[], float]) -> None:
        """Have the time of a launched call on the GPU asked for when it is complete."""
        self._timers[call] = seconds

    def remove(self, call: Call) -> bool:
        """Forget a call; returns whether it was under way."""
        return self._open.pop(call, None) is not None

    def look(self) -> list[Call]:
        """Return the calls that are under way, and forget those that are complete."""
        return [call for call in list(self._open) if self.look_at(call)]

    def look_at(self, call: Call) -> bool:
        """Tell whether a call is under way, and forget it if it is complete."""
        is_completed, _ = self._open.get(call, (None, None))
        with contextlib.suppress(RuntimeError):  # CUDA has failed: the call will say so where it is used
            if is_completed is not None and not is_completed():
                return True
        self._open.pop(call, None)
        for each in (*call.batch, call):
            self._read_timer(each)
        return False

    def read_timers(self) -> None:
        """Ask for the times of all calls, which are complete."""
        for call in list(self._timers):
            self._read_timer(call)

    def is_reached(self, call: Call) -> bool:
        """Tell whether the GPU has done all that it was given before this call."""
        _, is_reached = self._open.get(call, (None, None))  # it may have ended meanwhile
        with contextlib.suppress(RuntimeError):  # CUDA has failed
            return is_reached is not None and is_reached()
        return False

    def _read_timer(self, call: Call) -> None:
        seconds = self._timers.pop(call, None)
        with contextlib.suppress(RuntimeError):  # a call that failed has no time
            if seconds is not None:
                call.device_seconds = seconds()
