"""Adds to an error of a cell that ran in the wrong place, notebook or ranks, where it belongs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from IPython.core.error import UsageError

from . import current
from .errors import RankError
from .naming import name_ranks
from .protocol.messages import RANK_NAMES

_IMPORTS = {"torch": "import torch", "dist": "import torch.distributed as dist"}
# Torch's texts.
_WITHOUT_A_GROUP = ("Default process group has not been initialized", "using env:// rendezvous")
_ALIKE = 0.75  # of 1: how much alike names are of which one may be a slip, or its new name
_NO_MAGIC = re.compile(r"`(?P<percent>%%?)(?P<name>[^`]+)` not found")  # IPython's text
_NO_CODE = "%%ranks is a cell magic, but the cell body is empty"  # IPython's, too
_NEW_RANKS = (
    "These ranks were started for this cell and have no variables of earlier cells. Run the cells that "
    "define the name first."
)
_NO_FILE = (
    "A cell has no __file__. Begin it with `%%writefile train.py` to save it as a script, then run the "
    "script with `%run train.py` in a %%ranks cell."
)


def of_the_notebook(name: str, notebook: Mapping[str, Any]) -> str:
    """Say where a name is that a cell of the notebook itself lacks; empty if it is nowhere."""
    if name in RANK_NAMES:
        instead = f", or import it here: {_IMPORTS[name]}" if name in _IMPORTS else ""
        return f"The ranks have {name}: begin the cell with %%ranks to run it on them{instead}."
    if not name:
        return ""
    if name in current.names_of_rank_0(name):
        return (
            f"The ranks have {name}, but the notebook does not: begin this cell with %%ranks to use it "
            f"there, define it without %%ranks to have it here, or bring it here as a list by "
            f"`%%ranks --out {name}`."
        )
    return _of_a_cell(name, notebook) or _of_another_name(name, notebook)


def _of_a_cell(name: str, notebook: Mapping[str, Any]) -> str:
    """Name the last cell before this one that was to define a function or class, and did not."""
    definition = re.compile(rf"^(async )?(def|class) {re.escape(name)}\b", re.MULTILINE)
    *before, _ = notebook["In"]
    numbers = [number for number, cell in enumerate(before) if definition.search(cell)]
    if not numbers:
        return ""
    return (
        f"It is defined in cell In[{numbers[-1]}], which ended with an error: fix that cell and run it again."
    )


def _of_another_name(name: str, notebook: Mapping[str, Any]) -> str:
    meant = _alike(name, [other for other in notebook if not other.startswith("_")])
    return f"Did you mean {meant}?" if meant else ""


def _alike(name: str, others: Iterable[str]) -> str:
    """Find the name that this one is most like; empty if none is."""
    return next(iter(difflib.get_close_matches(name, list(others), n=1, cutoff=_ALIKE)), "")


def of_a_collective(error: ValueError) -> str:
    """Say where collectives run, if that is what a cell of the notebook itself has tried; else nothing."""
    tried = any(text in str(error) for text in _WITHOUT_A_GROUP)
    return "Begin the cell with %%ranks to run it on the ranks, which have a process group." if tried else ""


def of_a_magic(error: UsageError) -> str:
    """Say what was meant by a magic that does not exist or has no code; empty if it was none of ours."""
    if str(error).startswith(_NO_CODE):
        return "Code for the ranks stands on the lines below %%ranks."
    unknown = _NO_MAGIC.search(str(error))
    if unknown is None or not _alike(unknown["name"], ["ranks"]):
        return ""
    return f"Did you mean `{unknown['percent']}ranks`?"


def of_the_ranks(error: RankError, notebook: Mapping[str, Any], just_started: bool = False) -> str:
    """Say where the names are that ranks lack, or what else was meant; empty if nothing is known.

    Args:
        notebook: the notebook's variables.
        just_started: whether the cell that failed is the first one of these ranks.
    """
    lacking: dict[str, list[int]] = {}
    for rank, remote in error.errors.items():
        if remote.undefined:
            lacking.setdefault(remote.undefined, []).append(rank)
    lines = [_of_a_name(name, ranks, notebook, just_started) for name, ranks in lacking.items()]
    return "\n".join(dict.fromkeys(filter(None, lines)))


def _of_a_name(name: str, ranks: list[int], notebook: Mapping[str, Any], just_started: bool) -> str:
    """Say where a name is that these ranks lack, or what else was meant."""
    if name == "__file__":
        return _NO_FILE
    names_of_rank_0 = current.names_of_rank_0(name[0])
    if name in names_of_rank_0 and 0 not in ranks:
        do = "does" if len(ranks) == 1 else "do"
        return (
            f"Rank 0 has {name}, but {name_ranks(ranks)} {do} not: define it there, too, "
            "or begin the cell with `%%ranks 0`."
        )
    if name in notebook and not name.startswith("_"):
        return _of_one_variable(name, notebook[name])
    if meant := _alike(name, {*RANK_NAMES, *names_of_rank_0} - {name}):
        return f"Did you mean {meant}?"
    return _NEW_RANKS if just_started else ""


def _of_one_variable(name: str, value: Any) -> str:
    if isinstance(value, ModuleType):
        path = value.__name__
        as_name = f" as {name}" if path != name else ""
        return (
            f"The notebook has imported {name}, but the ranks have not. "
            f"In a %%ranks cell: import {path}{as_name}"
        )
    return f"The notebook has a variable {name}, but the ranks do not. `%ranks push {name}` sends it to them."
