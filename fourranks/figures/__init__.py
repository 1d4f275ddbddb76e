"""Drawings for lectures, and the numbers that lectures and checks compare with. Ranks run without all this.

The functions that draw are imported when they are first used: matplotlib takes longer to import than a world
to start.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "attention_weights": "attention",
    "compare": "prediction",
    "curves": "lines",
    "finding": "findings",
    "links": "links",
    "placements": "placements",
    "predicted": "prediction",
    "review": "review",
    "scaled": "drawable",
    "schedule": "schedule",
}

__all__ = [
    "attention_weights",
    "compare",
    "curves",
    "finding",
    "links",
    "placements",
    "predicted",
    "review",
    "scaled",
    "schedule",
]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOME[name]}")
    globals()[name] = getattr(module, name)  # also where the submodule of the same name was bound
    return globals()[name]
