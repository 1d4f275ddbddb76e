"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

import importlib
import inspect
import pkgutil

from autograder import topics

__all__ = []

for _topic in pkgutil.iter_modules(topics.__path__):
    _module = importlib.import_module(f"{topics.__name__}.{_topic.name}")
    _checks = dict(inspect.getmembers(_module, inspect.isfunction))
    globals().update(_checks)
    __all__ += _checks


def __dir__() -> list[str]:
    """Return what a notebook offers behind `check.`: the checks, without modules."""
    return sorted(__all__)
