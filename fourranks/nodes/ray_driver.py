"""The process that talks to Ray for a notebook: keeps slots, starts agents, and carries their bytes.

`on_ray` starts it and has the other end. An agent's bytes go to it as calls of an actor and come from it by
the actor's generator, over Ray's own connections: nothing here listens.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..errors import StartError
from ..protocol.channel import Channel
from . import ray_actor
from .messages import Release, Reserve, Reserved, Slots, StartAgent
from .ray_join import join

PATIENCE = 30.0  # seconds for slots that others, or a world that has just ended, still use
START_PATIENCE = 120.0  # seconds for Ray to start an actor; a busy node took 20
UNDER_WAY = 32  # chunks that an agent has not taken yet
CHUNK = ray_actor.CHUNK


class Driver:
    """Does what the notebook asks for until it is gone."""

    def __init__(self, notebook: socket.socket) -> None:
        self._notebook = Channel(notebook, blocking=True)
        self._groups: dict[int, PlacementGroup] = {}

    def serve(self) -> None:
        """Answer one message after another."""
        while True:
            message, descriptors = self._notebook.receive_with_descriptors()
            match message:
                case None:
                    return
                case Reserve():
                    self._notebook.send(self._reserve(message))
                    if not ray.is_initialized():  # the next process may find another environment
                        return
                case StartAgent():
                    sock, errors = descriptors
                    carrier = Carrier(
                        message, self._groups[message.number], socket.socket(fileno=sock), errors
                    )
                    threading.Thread(target=carrier.run, daemon=True).start()
                case Release(number):
                    self._release(number)

    def _reserve(self, wanted: Reserve) -> Reserved:
        try:
            if not ray.is_initialized():
                join()
            return Reserved(wanted.number, self._slots(wanted))
        except StartError as error:
            return Reserved(wanted.number, trouble=str(error))
        except RayError as error:
            return Reserved(wanted.number, trouble=f"Ray cannot keep slots for the ranks: {error}")

    def _slots(self, wanted: Reserve) -> tuple[Slots, ...]:
        count, total = wanted.world_size, ray.cluster_resources()
        resource = wanted.resource or ("GPU" if total.get("GPU", 0) >= count else "CPU")
        lack = f"{count} ranks were asked for, one on each {resource}, and the Ray cluster has"
        if total.get(resource, 0) < count:
            raise StartError(f"{lack} {total.get(resource, 0):g}.")
        bundle = {"GPU": 1, "CPU": 0} if resource == "GPU" else {"CPU": 1}
        group = placement_group([bundle] * count, strategy="PACK")
        self._groups[wanted.number] = group
        if not group.wait(PATIENCE):
            self._release(wanted.number)
            free = ray.available_resources().get(resource, 0)
            raise StartError(f"{lack} {total[resource]:g}, of which {free:g} are free.")
        return by_node(placement_group_table(group)["bundles_to_node_id"], ray.nodes(), resource)

    def _release(self, number: int) -> None:
        if group := self._groups.pop(number, None):
            remove_placement_group(group)


def by_node(bundles: dict[int, str], nodes: list[dict[str, Any]], resource: str) -> tuple[Slots, ...]:
    """Put the bundles of each node together: the node with most of them first, else by their names.

    Args:
        bundles: the ID of each one's node.
        nodes: what Ray says of its nodes.
        resource: of which each bundle has one.
    """
    known = {node["NodeID"]: node for node in nodes}
    names = Counter(node["NodeName"] for node in nodes)
    found = []
    counts = Counter(bundles.values())
    for node in sorted(counts, key=lambda each: (-counts[each], known[each]["NodeName"])):
        name, address = known[node]["NodeName"], known[node]["NodeManagerAddress"]
        own = tuple(sorted(bundle for bundle, its in bundles.items() if its == node))
        found.append(Slots(name if names[name] == 1 else f"{name}-{node[:6]}", address, own, resource))
    return tuple(found)


class Carrier:
    """Carries the bytes of one agent.

    Args:
        order: which agent.
        group: the placement group that it belongs to.
        sock: where the notebook's relay has the other end.
        errors: a descriptor of a file for what the agent, or Ray, says at its end.
    """

    def __init__(self, order: StartAgent, group: PlacementGroup, sock: socket.socket, errors: int) -> None:
        self._order, self._group, self._sock, self._errors = order, group, sock, errors

    def run(self) -> None:
        """Start the agent and carry until it, or the relay, is gone."""
        actors: list[Any] = []
        try:
            self._carry(actors)
        except RayTaskError as error:
            self._say(str(error.cause))
        except RayActorError:
            self._say("Ray's process there has ended, or its node.")
        except RayError as error:
            self._say(f"Ray: {str(error).strip().splitlines()[-1]}")
        finally:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()
            for actor in actors:
                ray.kill(actor)
            os.close(self._errors)

    def _carry(self, actors: list[Any]) -> None:
        """Carry, and note the actors that are to be killed at the end."""
        slots, gpus = self._order.slots, None
        if slots.resource == "GPU":  # one actor cannot have those of several bundles
            actors += [self._actor(ray_actor.SlotHolder, bundle, num_gpus=1) for bundle in slots.bundles]
            own = ray.get([holder.gpus.remote() for holder in actors], timeout=START_PATIENCE)
            gpus = [gpu for each in own for gpu in each]
        cpus = 0 if slots.resource == "GPU" else 1
        groups = {"feed": 1, "read": 1}
        host = self._actor(ray_actor.AgentHost, slots.bundles[0], num_cpus=cpus, concurrency_groups=groups)
        actors.append(host)
        trouble = ray.get(host.begin.remote(self._order.command, gpus), timeout=START_PATIENCE)
        if trouble:
            self._say(trouble)
            return
        threading.Thread(target=self._feed, args=[host], daemon=True).start()
        for chunk in host.read.options(num_returns="streaming").remote():
            try:
                self._sock.sendall(ray.get(chunk))
            except OSError:  # the relay is gone
                return

    def _feed(self, host: Any) -> None:
        """Hand the agent what the relay sends, and at last that there is no more."""
        under_way: deque[Any] = deque()
        for number, data in enumerate(self._received()):
            under_way.append(host.feed.remote(number, data))
            if len(under_way) > UNDER_WAY:
                try:
                    ray.get(under_way.popleft())
                except RayError:  # told by `read`, too
                    return

    def _received(self) -> Iterator[bytes]:
        data = b"first"
        while data:
            try:
                data = self._sock.recv(CHUNK)
            except OSError:
                data = b""
            yield data

    def _actor(self, kind: type, bundle: int, **options: Any) -> Any:
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        chosen = {"num_cpus": 0, "num_gpus": 0, "scheduling_strategy": strategy} | options
        return ray.remote(**chosen)(kind).remote()

    def _say(self, text: str) -> None:
        os.write(self._errors, f"{text}\n".encode())


def main(descriptor: int) -> None:
    """Talk to Ray until the notebook is gone."""
    ray.cloudpickle.register_pickle_by_value(ray_actor)
    try:
        Driver(socket.socket(fileno=descriptor)).serve()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
