"""Hooks that a reader gives a process group, as torch 2.15 offers: the group that does the work calls them.

The group that torch sees makes no call, and would call no hook.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .process_group import RecordingProcessGroup

_METHODS = [name for name in vars(dist.ProcessGroup) if name.endswith(("pre_hook", "post_hook"))]
_OF_TORCH = [getattr(c10d, name) for name in ("NanCheckHook", "FlightRecorderHook") if hasattr(c10d, name)]


def forwarded() -> dict[str, Callable[..., None]]:
    """Return the methods of a process group, by name, that register hooks and take them back."""
    return {name: _forwarded(name) for name in _METHODS}


def attached_inside() -> dict[type, Callable[..., Any]]:
    """Return for each hook of torch's own what attaches it to a group."""
    return {hook: _attached_inside(hook.attach) for hook in _OF_TORCH}


def _forwarded(name: str) -> Callable[..., None]:
    def method(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> None:
        self.has_hooks = True
        getattr(self.inner, name)(*args, **kwargs)

    return method


def _attached_inside(attach: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(attach)
    def attached(pg: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(pg, RecordingProcessGroup):
            return attach(pg, *args, **kwargs)
        pg.has_hooks = True
        return attach(pg.inner, *args, **kwargs)

    return attached
