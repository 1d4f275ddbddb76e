"""Four Ranks: run notebook cells on real ranks.

%load_ext fourranks
%ranks start

%%ranks
x = torch.arange(4.) + rank
dist.all_reduce(x)
x
"""

from typing import Any

from .current import world
from .errors import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, StartError
from .group import RankGroup, run, start
from .magics import load_ipython_extension, unload_ipython_extension
from .progress_bar import progress
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


def __getattr__(name: str) -> Any:
    if name != "show":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .views.collective import show  # matplotlib takes a while to import

    return show
