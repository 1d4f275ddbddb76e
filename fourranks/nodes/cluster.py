"""The nodes of a world that is spread over several: connects them, and deals ranks out to them."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import StartError
from ..hardware import Gpus
from ..placement import Placement, place
from ..zygote import Zygote
from . import addresses, launchers
from .names import NamedNode, shares
from .remote_zygote import PYTHON_VARIABLE, RemoteZygote, agent_command

_connected: dict[tuple[str, str], RemoteZygote] = {}  # by node and launcher: warm for the next world


class NodeCluster:
    """Nodes that a launcher reaches. A node that is lost is tried again when the world is placed again.

    Attributes:
        missing: as in `Nodes`.
    """

    def __init__(self, nodes: Sequence[NamedNode], launcher: str) -> None:
        self._nodes, self._launcher = nodes, launcher
        self._zygotes: dict[str, RemoteZygote] = {}
        self.missing: Mapping[str, str] = {}

    def place(self, world_size: int, backend: str, device: str) -> Placement:
        """Choose a backend, and for each rank a node and a device on it.

        Each node gets the next ranks in order, and about as many as the others. On GPUs with NCCL it gets no
        more than it has GPUs.
        """
        self._require_room(world_size)
        self._connect()
        nodes = [node for node in self._nodes if node.name not in self.missing]
        gpus: list[Gpus] = []

        def find() -> Gpus:
            gpus.extend(self._zygotes[node.name].gpus() for node in nodes)
            return _together(gpus)

        try:
            overall = place(world_size, backend, device, find)
            own_gpu = overall.on_gpus and overall.ranks_per_gpu == 1
            slots = [
                min(found.count, node.slots or found.count) if own_gpu else node.slots
                for node, found in zip(nodes, gpus or [Gpus()] * len(nodes), strict=True)
            ]
            counts = shares(world_size, slots)
        except StartError as error:
            raise StartError(f"{error}{self._told_missing()}") from None
        return _placement(overall, nodes, counts, gpus)

    def warm_up(self) -> None:
        """Begin to connect, and have torch imported on the nodes, before ranks are asked for."""
        for node in self._nodes:
            self._reach(node.name)

    def release(self) -> None:
        """Keep the connections: they are warm for the next world."""

    def zygotes(self) -> Mapping[str, Zygote]:
        """Return the zygote of each node, by name."""
        return self._zygotes

    def _require_room(self, world_size: int) -> None:
        """Refuse at once what no answer of the nodes could make possible."""
        if not self._zygotes:
            shares(world_size, [node.slots for node in self._nodes])

    def _connect(self) -> None:
        """Connect all nodes at once; one that was reached before may be missing now.

        Raises:
            StartError: a node cannot be reached, and was not before; or none can.
        """
        again, missing = bool(self._zygotes), dict[str, str]()
        self._zygotes = {node.name: self._reach(node.name) for node in self._nodes}
        greetings = {}
        for name, zygote in self._zygotes.items():
            try:
                greetings[name] = zygote.welcome()
            except StartError as error:
                missing[name] = str(error)
        self.missing = missing
        for name in missing:
            self._zygotes.pop(name)
            self._give_up(name)
        if missing and not (again and self._zygotes):
            raise StartError("\n".join(missing.values()))
        chosen = addresses.chosen([(name, greeting.interfaces) for name, greeting in greetings.items()])
        for zygote, interface in zip(self._zygotes.values(), chosen, strict=True):
            zygote.host, zygote.interface = interface.host, interface.name

    def _reach(self, name: str) -> RemoteZygote:
        """Return the zygote of a node, without waiting until it is there."""
        return _connection(name, self._launcher)

    def _give_up(self, name: str) -> None:
        _connected.pop((name, self._launcher)).stop()

    def _told_missing(self) -> str:
        return "".join(f"\n{trouble}" for trouble in self.missing.values())


@atexit.register
def disconnect() -> None:
    """End the connections to all nodes, and with them the ranks there."""
    own = [zygote for zygote in _connected.values() if zygote.owner == os.getpid()]
    for zygote in own:
        zygote.channel.close()  # of all, before one is waited for
    for zygote in own:
        zygote.stop()
    _connected.clear()


def _connection(node: str, launcher: str) -> RemoteZygote:
    zygote = _connected.get((node, launcher))
    if zygote is not None and zygote.owner != os.getpid():  # that of the process that has forked this one
        zygote = None
    if zygote is None or not zygote.alive:
        if zygote is not None:
            zygote.stop()
        python = os.environ.get(PYTHON_VARIABLE, sys.executable)
        way = launchers.command_on(node, launcher, agent_command(node, python))
        zygote = _connected[node, launcher] = RemoteZygote(node, way)
    return zygote


def _together(gpus: Sequence[Gpus]) -> Gpus:
    """Return the GPUs of all nodes as if one machine had them; a feature that one node lacks, all lack."""
    lacking = next((each for each in gpus if not each.nccl), None)
    return Gpus(
        tuple(name for each in gpus for name in each.names),
        () if lacking is not None else min(each.nccl for each in gpus),
        next((each.trouble for each in gpus if each.trouble), ""),
        gpus[0].cuda,
    )


def _placement(
    overall: Placement, nodes: Sequence[NamedNode], counts: Sequence[int], gpus: Sequence[Gpus]
) -> Placement:
    names: list[str] = []
    devices: list[str] = []
    gpu_names: list[str] = []
    for index, (node, count) in enumerate(zip(nodes, counts, strict=True)):
        for local_rank in range(count):
            names.append(node.name)
            gpu = local_rank % gpus[index].count if overall.on_gpus else None
            devices.append("cpu" if gpu is None else f"cuda:{gpu}")
            gpu_names.append("" if gpu is None else gpus[index].names[gpu])
    return replace(overall, devices=tuple(devices), gpu_names=tuple(gpu_names), nodes=tuple(names))
