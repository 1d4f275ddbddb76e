"""Stands for `autograder.check` in the sandbox: nothing is checked there, but by the referee."""

from __future__ import annotations

from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("_"):
        raise AttributeError(name)
    return lambda *arguments, **options: None
