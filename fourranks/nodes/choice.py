"""Where the ranks of a world start: on this machine, on nodes that a launcher reaches, or on Ray's."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import StartError
from . import cluster, launchers, on_ray
from .cluster import NodeCluster
from .names import RAY, asked_for
from .on_ray import RayCluster
from .this_machine import Nodes, ThisMachine


def nodes_for(nodes: str | Sequence[str] | None, launcher: str | None, on: str | None = None) -> Nodes:
    """Return where a world's ranks start.

    Args:
        nodes: the names of its nodes; None for what the environment says, else this machine.
        launcher: see `launchers.chosen`.
        on: "ray" for the nodes of a Ray cluster.

    Raises:
        StartError: the nodes or the launcher cannot be read, or there are no nodes for the launcher.
    """
    if on is not None:
        if on != RAY:
            raise StartError(f"Ranks cannot be started on {on!r}; choose {RAY}, or name nodes.")
        if nodes or launcher:
            raise StartError("On Ray the cluster says which nodes there are: leave nodes and launcher out.")
        return RayCluster()
    found = asked_for(nodes)
    if launcher and not found:
        raise StartError(f"A launcher is for ranks on other nodes: name them, or leave {launcher!r} out.")
    return NodeCluster(found, launchers.chosen(launcher)) if found else ThisMachine()


def disconnect() -> None:
    """End the connections to all nodes, and with them the ranks there."""
    cluster.disconnect()
    on_ray.disconnect()
