"""The environment variables of a rank: the notebook's, torchrun's, and what Gloo and NCCL need."""

from __future__ import annotations

import os
import sys

from ..protocol.messages import Settings
from . import cuda


def of_torchrun(settings: Settings) -> dict[str, str]:
    """Return the variables that torchrun sets for one process."""
    rank, world_size, location = str(settings.rank), str(settings.world_size), settings.location
    return {
        "RANK": rank,
        "LOCAL_RANK": rank if location is None else str(location.local_rank),
        "ROLE_RANK": rank,
        "GROUP_RANK": "0" if location is None else str(location.node),
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": str(settings.local_world_size),
        "ROLE_WORLD_SIZE": world_size,
        "GROUP_WORLD_SIZE": "1" if location is None else str(len(location.hosts)),
        "ROLE_NAME": "default",
        "MASTER_ADDR": settings.store_host,
        "MASTER_PORT": str(settings.store_port),
        "TORCHELASTIC_RUN_ID": "fourranks",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def enter(settings: Settings) -> None:
    """Have the variables of this rank, and no others. Most are there already: setting one copies pages."""
    variables = _of_rank(settings)
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


def _of_rank(settings: Settings) -> dict[str, str]:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    interface = loopback if settings.location is None else settings.location.interface
    return (
        cuda.nccl_defaults(settings.ranks_per_gpu)
        | settings.environment
        | of_torchrun(settings)
        | cuda.nccl_requirements(settings.ranks_per_gpu, interface)
        | {"GLOO_SOCKET_IFNAME": interface, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    )
