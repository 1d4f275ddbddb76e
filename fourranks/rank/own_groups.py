"""Process groups that the reader has written in Python: torch gets them as they are, without records.

Such a group comes from a backend that `dist.Backend.register_backend` has made known. It takes the place of
the group that torch has built for it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch.distributed as dist

from .process_group import RecordingProcessGroup


class _MadeByTorch(type(dist.ProcessGroup)):  # type: ignore[misc]  # torch does not describe its own
    """Has `ProcessGroup` make recording groups, and count every process group as one of its own."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is ProcessGroup:
            return RecordingProcessGroup(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is ProcessGroup:
            return isinstance(instance, dist.ProcessGroup)
        return super().__instancecheck__(instance)  # type: ignore[no-any-return]

    def __subclasscheck__(cls, subclass: type) -> bool:  # torch asks so for what a backend has returned
        if cls is ProcessGroup:
            return issubclass(subclass, dist.ProcessGroup)
        return super().__subclasscheck__(subclass)  # type: ignore[no-any-return]


class ProcessGroup(dist.ProcessGroup, metaclass=_MadeByTorch):
    """Stands where torch makes its process groups, and asks whether the reader has made one in Python."""


def taken(make: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """Wrap the making of a group so that it also ends with one that the reader has written in Python."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        group, store = make(*args, **kwargs)
        if RecordingProcessGroup.being_formed is not None and _is_own(group):
            RecordingProcessGroup.being_formed.end_formation()
        return group, store

    return made


def leave(groups: Iterable[dist.ProcessGroup]) -> None:
    """Keep torch from shutting down groups that the reader has written: they may raise, or wait."""
    for group in filter(_is_own, groups):
        with contextlib.suppress(AttributeError):  # unless all of it is torch's C++
            group.shutdown = _nothing_to_shut_down  # type: ignore[method-assign]


def _is_own(group: object) -> bool:
    return isinstance(group, dist.ProcessGroup) and not isinstance(group, RecordingProcessGroup)


def _nothing_to_shut_down() -> None:
    pass
