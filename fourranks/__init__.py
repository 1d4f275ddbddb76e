"""Four Ranks: run notebook cells on real ranks.

%load_ext fourranks
%ranks start

%%ranks
x = torch.arange(4.) + rank
dist.all_reduce(x)
x
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .current import world
    from .errors import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, StartError
    from .extension import load_ipython_extension, unload_ipython_extension
    from .group import RankGroup, run, start
    from .progress_bar import progress
    from .views.collective import show
    from .virtual import VirtualRank, run_virtual

__all__ = [
    "CellTimeout",
    "DeadlockError",
    "FourRanksError",
    "RankDied",
    "RankError",
    "RankGroup",
    "StartError",
    "VirtualRank",
    "load_ipython_extension",
    "progress",
    "run",
    "run_virtual",
    "show",
    "start",
    "unload_ipython_extension",
    "world",
]
__version__ = "0.1.0"

_MODULES = {
    "current": ["world"],
    "errors": ["CellTimeout", "DeadlockError", "FourRanksError", "RankDied", "RankError", "StartError"],
    "extension": ["load_ipython_extension", "unload_ipython_extension"],
    "group": ["RankGroup", "run", "start"],
    "progress_bar": ["progress"],
    "views.collective": ["show"],
    "virtual": ["VirtualRank", "run_virtual"],
}


def __getattr__(name: str) -> Any:
    """Import a public name, or a module of this package, at its first use.

    The process that ranks are forked from needs little of all this, and every rank waits for its imports.
    """
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module(f".{module}", __name__), name)
            return globals().setdefault(name, value)
    if not name.startswith("_"):
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise  # the module is there, and lacks another one
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
