"""Where ranks start when no nodes are named: here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .. import zygote
from ..placement import Placement, place
from ..zygote import Zygote


class Nodes(Protocol):
    """The place where the ranks of a world start: the one interface that `conductor` and `workers` see.

    Attributes:
        missing: why each node that was lost could not be reached again, by its name.
    """

    missing: Mapping[str, str]

    def warm_up(self) -> None:
        """Begin what takes long, and return at once."""

    def place(self, world_size: int, backend: str, device: str) -> Placement:
        """Choose a backend, and for each rank a node and a device.

        Raises:
            StartError: as from `placement.place`, or because nodes cannot be reached.
        """

    def release(self) -> None:
        """Give back what is reserved for a world that has ended."""

    def zygotes(self) -> Mapping[str, Zygote]:
        """Return the processes that ranks are forked from, by the names that a placement gives nodes."""


class ThisMachine:
    """The only node of a world."""

    missing: Mapping[str, str] = {}

    def warm_up(self) -> None:
        """Begin to import torch in the process that ranks are forked from."""
        zygote.shared()

    def place(self, world_size: int, backend: str, device: str) -> Placement:
        """Choose a backend, and a device for each rank: see `placement.place`."""
        return place(world_size, backend, device, lambda: zygote.shared().gpus())

    def release(self) -> None:
        """Keep the process: it is warm for the next world."""

    def zygotes(self) -> Mapping[str, Zygote]:
        """Return this machine's zygote, under the name that a placement gives this machine."""
        return {"": zygote.shared()}
