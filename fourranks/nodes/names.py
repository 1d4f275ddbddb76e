"""The nodes that a reader asks for, as they are written: `hostA,hostB`, `hostA:4,hostB:4`, `slurm`."""

from __future__ import annotations

import os
import re
import reprlib
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import StartError

VARIABLE = "FOURRANKS_NODES"  # of the environment: the nodes of worlds that name none
SLURM = "slurm"  # in place of names: the nodes of the allocation
RAY = "ray"  # stands for a cluster that ranks may be started on, in place of named nodes
_NAME = re.compile(r"[^\s'\"]+")  # quotes are a shell's, and `%ranks` has none
_FOR_INSTANCE = "write for instance hostA,hostB, or hostA:4 for 4 ranks there"


@dataclass(frozen=True)
class NamedNode:
    """A node as it was asked for.

    Attributes:
        name: as the launcher knows it.
        slots: ranks that it may have; None: a rank for each GPU with NCCL, else as many as there are.
    """

    name: str
    slots: int | None = None


def asked_for(nodes: str | Sequence[str] | None) -> list[NamedNode]:
    """Return the nodes of a world; none if it is for this machine alone.

    Args:
        nodes: their names; None for what the environment says.

    Raises:
        StartError: they cannot be read.
    """
    given = os.environ.get(VARIABLE, "") if nodes is None else nodes
    if isinstance(given, str):
        words = given.split(",")
    else:
        words = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(word, str) for word in words):
        raise StartError(f"Nodes are given by their names, not as {reprlib.repr(given)}; {_FOR_INSTANCE}.")
    words = [word.strip() for word in words if word.strip()]
    if (given and not words) or nodes == "":
        raise StartError(f"{given!r} names no node; {_FOR_INSTANCE}.")
    if words == [SLURM]:
        words = _of_the_allocation()
    found = [_read(word) for word in words]
    twice = [name for name, count in Counter(node.name for node in found).items() if count > 1]
    if twice:
        raise StartError(
            f"The node {twice[0]} is named twice. To have more ranks there, write {twice[0]}:SLOTS."
        )
    return found


def _read(word: str) -> NamedNode:
    name, colon, slots = word.rpartition(":")
    if not colon:
        name, slots = word, "1"
    if not _NAME.fullmatch(name) or not slots.isdecimal() or int(slots) < 1:
        raise StartError(f"{word!r} does not name a node; {_FOR_INSTANCE}.")
    return NamedNode(name, int(slots) if colon else None)


def _of_the_allocation() -> list[str]:
    listed = os.environ.get("SLURM_JOB_NODELIST")
    if listed is None:
        raise StartError("`slurm` stands for the nodes of a Slurm allocation, and this process is in none.")
    try:
        shown = subprocess.run(
            ["scontrol", "show", "hostnames", listed], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StartError(f"Slurm does not tell the names of the nodes {listed}: {error}") from None
    return shown.stdout.split()


def shares(world_size: int, slots: Sequence[int | None]) -> list[int]:
    """Deal ranks out to nodes, one at a time, as long as each has room; returns how many each gets.

    Raises:
        StartError: there is no room for all.
    """
    room = [world_size if each is None else each for each in slots]
    if sum(room) < world_size:
        raise StartError(f"{world_size} ranks were asked for, and these nodes have room for {sum(room)}.")
    dealt = [0] * len(room)
    while sum(dealt) < world_size:
        for index, most in enumerate(room):
            if dealt[index] < most and sum(dealt) < world_size:
                dealt[index] += 1
    return dealt
