"""How long a backward pass stands still at its end, for calls that C++ code waits for: DDP's reducer does.

Nothing of Python runs while C++ waits, but autograd tells when that begins and ends. DDP waits in a callback
that autograd runs when all gradients are there. One that was queued earlier, when the first call was made,
runs just before it; one that this queues in turn runs just after it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TypeAlias

import torch

from ..protocol.calls import Call

Awaited: TypeAlias = list[tuple[Call, Callable[[], bool]]]  # calls, and whether each is complete


class BackwardWait:
    """Collects the calls of one backward pass whose futures were taken, and times the wait for them.

    Args:
        note: is given these calls, and when the rank began to stand still for them, at the wait's end.
    """

    def __init__(self, note: Callable[[Awaited, float], None]) -> None:
        self._note = note
        self._backward_pass = -1
        self._calls: dict[Call, Callable[[], bool]] = {}

    def expect(self, call: Call, is_completed: Callable[[], bool]) -> None:
        """Note that the future of this call was taken; does nothing outside of a backward pass."""
        backward_pass = torch._C._current_graph_task_id()
        if backward_pass == -1:
            return
        if backward_pass != self._backward_pass:
            self._backward_pass, self._calls = backward_pass, {}
            _at_the_end(functools.partial(self._begin, self._calls))
        self._calls[call] = is_completed

    def let_go(self, call: Call) -> None:
        """Forget a call that code of Python has waited for, as in a hook: futures hold tensors."""
        self._calls.pop(call, None)

    def _begin(self, calls: dict[Call, Callable[[], bool]]) -> None:
        _at_the_end(functools.partial(self._end, calls, time.perf_counter()))

    def _end(self, calls: dict[Call, Callable[[], bool]], begun: float) -> None:
        self._note(list(calls.items()), begun)
        calls.clear()  # futures hold tensors


def _at_the_end(callback: Callable[[], None]) -> None:
    """Have autograd call this when the running backward pass has computed all gradients."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)
