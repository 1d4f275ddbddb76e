"""Four Ranks: run notebook cells on real ranks.

%load_ext fourranks
%ranks start

%%ranks
x = torch.arange(4.) + rank
dist.all_reduce(x)
x
"""

from .current import world
from .errors import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, StartError
from .group import RankGroup, run, start
from .magics import load_ipython_extension, unload_ipython_extension

__all__ = [
    "CellTimeout",
    "DeadlockError",
    "FourRanksError",
    "RankDied",
    "RankError",
    "RankGroup",
    "StartError",
    "load_ipython_extension",
    "run",
    "start",
    "unload_ipython_extension",
    "world",
]
__version__ = "0.1.0"
