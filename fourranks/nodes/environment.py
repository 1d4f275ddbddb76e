"""The environment variables, and the paths, that ranks on another machine get from the notebook.

Each machine keeps its own PATH, HOME and libraries, as with ssh. Only the settings that
the reader has made in the notebook travel, and those of the libraries with which ranks communicate and
compute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_SETTINGS = ("NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "CUBLAS_", "OMP_", "MKL_", "FOURRANKS_")
_OF_THE_MACHINE = {
    "CONDA_PREFIX", "CUDA_HOME", "GLOO_SOCKET_IFNAME", "HOME", "HOSTNAME", "LD_LIBRARY_PATH", "LOGNAME",
    "NCCL_SOCKET_IFNAME", "PATH", "PWD", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONPATH", "SHELL", "TMPDIR",
    "USER", "VIRTUAL_ENV",
}  # fmt: skip
_NOTEBOOKS = ("JPY_", "JUPYTER", "SSH_", "SLURM_", "XDG_", "DBUS_")


def travelling(variables: Mapping[str, str]) -> dict[str, str]:
    """Choose from the notebook's variables those that its ranks get on every node."""
    at_start = _at_start()
    return {
        name: value
        for name, value in variables.items()
        if name not in _OF_THE_MACHINE
        and not name.startswith(_NOTEBOOKS)
        and (name.startswith(_SETTINGS) or (at_start is not None and at_start.get(name) != value))
    }


def _at_start() -> dict[str, str] | None:
    """Return the variables that this process was started with; None where the system does not say."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)


def directory_here(wanted: str) -> str:
    """Return the notebook's working directory where it exists here, too, else the home directory."""
    return wanted if os.path.isdir(wanted) else str(Path.home())


def path_here(own: list[str], notebooks: list[str]) -> list[str]:
    """Return this machine's `sys.path`, and what the notebook's has besides that exists here."""
    return own + [entry for entry in notebooks if entry not in own and entry and os.path.exists(entry)]
