"""Functions that took a clock as a default when they were defined, such as timeit's."""

from __future__ import annotations

import sys
import timeit
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def timers_read(stand_ins: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Put other clocks in the place of those that timers have as defaults: `stand_ins`, by the real one."""
    defaults = {timer: timer.__defaults__ for timer in _timers()}
    try:
        for timer, values in defaults.items():
            timer.__defaults__ = tuple(_replaced(value, stand_ins) for value in values)
        yield
    finally:
        for timer, values in defaults.items():
            timer.__defaults__ = values


def _timers() -> list[Any]:
    benchmark = sys.modules.get("torch.utils.benchmark")
    return [timeit.Timer.__init__, timeit.timeit, timeit.repeat] + (
        [benchmark.Timer.__init__] if benchmark else []
    )


def _replaced(value: object, stand_ins: dict[Any, Callable[..., Any]]) -> object:
    return stand_ins.get(value, value) if isinstance(value, types.BuiltinFunctionType) else value
