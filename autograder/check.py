"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

import importlib
import pkgutil

from autograder import topics

__all__ = []

for _topic in pkgutil.iter_modules(topics.__path__):
    _checks = importlib.import_module(f"{topics.__name__}.{_topic.name}")
    globals().update({name: getattr(_checks, name) for name in _checks.__all__})
    __all__ += _checks.__all__
