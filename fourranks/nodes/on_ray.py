"""Worlds on the nodes of a Ray cluster: the part in the notebook's process.

Ray says which nodes there are, keeps a slot for each rank, and starts an `agent` on each node. Ranks are no
actors of Ray's, and everything else is as on nodes that ssh reaches. `ray_driver` is the process that talks
to Ray, so that nothing of Ray is in the notebook's own.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import socket

from ..errors import StartError
from ..new_process import command
from ..placement import Placement, takes_cpus
from ..zygote import Zygote, ZygoteProcess
from .cluster import NodeCluster
from .messages import Release, Reserve, Reserved, Slots, StartAgent
from .names import NamedNode
from .remote_zygote import PYTHON_VARIABLE, RemoteZygote, agent_command

PYTHON_THERE = "{python}"  # in a command: the Python that Ray itself runs with on the node

_numbers = itertools.count(1)
_driver: RayDriver | None = None


class RayDriver(Zygote):
    """The handle of the process that talks to Ray."""

    def reserve(self, number: int, world_size: int, resource: str) -> tuple[Slots, ...]:
        """Have Ray keep a slot for each rank, and return on which nodes they are.

        Raises:
            StartError: there are not so many, or there is no cluster that may be used.
        """
        with self._lock:
            self.channel.send(Reserve(number, world_size, resource))
            while (answer := self._wait_for(Reserved)).number != number:
                pass  # to a question whose asker was interrupted
        if answer.trouble:
            raise StartError(answer.trouble)
        return answer.slots

    def start_agent(self, order: StartAgent, descriptors: list[int]) -> None:
        """Start the agent of a node, whose bytes go through the first of these descriptors."""
        with self._lock:
            self.channel.send_with_descriptors(order, descriptors)

    def release(self, number: int) -> None:
        """Give slots back."""
        with self._lock:
            self.channel.send(Release(number))

    def _command(self, descriptor: int) -> list[str]:
        return command("fourranks.nodes.ray_driver", str(descriptor))

    def _ended(self) -> StartError:
        return StartError(f"The process that talks to Ray has ended.\n{self.last_words()}")


class RayZygote(RemoteZygote):
    """The handle of the zygote on one of Ray's nodes.

    Args:
        driver: talks to Ray.
        number: of the reservation.
        slots: its places on this node.
    """

    def __init__(self, driver: RayDriver, number: int, slots: Slots) -> None:
        self._driver = driver
        python = os.environ.get(PYTHON_VARIABLE, PYTHON_THERE)
        self._order = StartAgent(number, slots, tuple(agent_command(slots.address, python)))
        super().__init__(slots.node, ())

    def _launch(self, theirs: socket.socket) -> ZygoteProcess:
        ours, agents = socket.socketpair()
        with ours, agents:
            self.inherited = (ours.fileno(),)
            self._way = [str(ours.fileno())]
            self._driver.start_agent(self._order, [agents.fileno(), self._errors.fileno()])
            return super()._launch(theirs)


class RayCluster(NodeCluster):
    """The nodes that Ray has kept slots on for one world, one slot a rank."""

    def __init__(self) -> None:
        super().__init__([], "")
        self._number = 0  # of the reservation; none yet
        self._slots: dict[str, Slots] = {}
        self._reached: dict[str, RayZygote] = {}

    def place(self, world_size: int, backend: str, device: str) -> Placement:
        """Choose a backend, and for each rank a node and a device on it.

        Slots are kept as long as no node is lost: Ray makes all of a placement group or nothing, but does not
        mend one that has lost a part.
        """
        before = list(self._slots)
        if not before or not all(zygote.alive for zygote in self._reached.values()):
            self._reserve(world_size, resource_for(backend, device))
        try:
            placement = super().place(world_size, backend, device)
        except BaseException:
            self.release()
            raise
        lost = [name for name in before if name not in self._slots]
        self.missing = {
            **self.missing,
            **{name: f"Ray has not given the node {name} again." for name in lost},
        }
        return placement

    def release(self) -> None:
        for zygote in self._reached.values():
            zygote.channel.close()  # of all, before one is waited for
        for zygote in self._reached.values():
            zygote.stop()
        if self._number and _driver is not None and _driver.owner == os.getpid():
            _driver.release(self._number)
        self._number, self._slots, self._reached = 0, {}, {}

    def _reserve(self, world_size: int, resource: str) -> None:
        """Get slots, and give back those of before."""
        self.release()
        driver, number = shared_driver(), next(_numbers)
        self._number = number
        found = driver.reserve(number, world_size, resource)
        self._slots = {slots.node: slots for slots in found}
        self._nodes = [NamedNode(slots.node, len(slots.bundles)) for slots in found]

    def _reach(self, name: str) -> RemoteZygote:
        if name not in self._reached:
            self._reached[name] = RayZygote(shared_driver(), self._number, self._slots[name])
        return self._reached[name]

    def _give_up(self, name: str) -> None:
        self._reached.pop(name).stop()


def resource_for(backend: str, device: str) -> str:
    """Return what each rank needs one of; empty for a GPU where there are enough, else a CPU."""
    if takes_cpus(backend, device):
        return "CPU"
    return "" if (backend, device) == ("auto", "auto") else "GPU"


def shared_driver() -> RayDriver:
    """Return this process's driver: started on the first call, and again if it has ended.

    Raises:
        StartError: Ray is not installed.
    """
    global _driver
    if importlib.util.find_spec("ray") is None:
        raise StartError(
            "Ranks on Ray need Ray, which this Python does not have: pip install 'fourranks[ray]', or "
            "ray==2.60.0. docs/clusters.md says how to start a cluster."
        )
    if _driver is None or not _driver.alive or _driver.owner != os.getpid():
        _driver = RayDriver()
    return _driver


@atexit.register
def disconnect() -> None:
    """End the connection to Ray, and with it all ranks there."""
    global _driver
    if _driver is not None and _driver.owner == os.getpid():
        _driver.stop()
    _driver = None
