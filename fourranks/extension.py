"""The extension of IPython: `%load_ext fourranks` and `%unload_ext fourranks`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import IPython
from IPython.core.error import UsageError

from . import zygote
from .errors import FourRanksError
from .nodes import choice

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

OLDEST_IPYTHON = (8, 20)  # as in pyproject.toml


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Begin to warm up the process that ranks are forked from, and add the magics (`%load_ext fourranks`).

    Raises:
        UsageError: the shell is a rank's, or the kernel has loaded an IPython that is too old; a newer one
            may wait for its restart.
    """
    if getattr(shell, "is_on_rank", False):
        raise UsageError(
            "%load_ext fourranks belongs to the notebook, and this code runs on a rank: leave the line out, "
            "or move it to a cell without %%ranks."
        )
    if IPython.version_info[:2] < OLDEST_IPYTHON:
        raise UsageError(
            f"fourranks needs IPython 8.20 or newer, and this kernel runs {IPython.__version__}: restart the "
            "kernel if a newer one has been installed since it began; otherwise %pip install 'ipython>=8.20'."
        )
    with contextlib.suppress(FourRanksError):  # the first start says so
        choice.nodes_for(None, None).warm_up()
    from . import magics  # while that process imports torch

    magics.add_to(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """End the ranks and the process that they are forked from (`%unload_ext fourranks`)."""
    from . import current, magics

    magics.remove_from(shell)
    if current.has_world():
        current.world().stop()
        print("The ranks have ended, and their variables with them.")
    choice.disconnect()
    zygote.stop_shared()
