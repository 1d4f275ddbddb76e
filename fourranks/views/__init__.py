"""What people look at: figures of what the ranks did. The views read recorded facts and change nothing.

Their functions are imported when they are first used: matplotlib takes longer to import than a world to
start.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "compare": "prediction",
    "curves": "curves",
    "links": "links",
    "placements": "placements",
    "schedule": "schedule",
    "show": "collective",
    "steps": "steps",
    "timeline": "timeline",
}

__all__ = ["compare", "curves", "links", "placements", "schedule", "show", "steps", "timeline"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOME[name]}")
    globals()[name] = getattr(module, name)  # also where the submodule of the same name was bound
    return globals()[name]
