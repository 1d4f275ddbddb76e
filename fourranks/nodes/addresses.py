"""The network interface by which the ranks of one node reach those of the others."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from ..errors import StartError


@dataclass(frozen=True)
class Interface:
    """A network interface and its address."""

    name: str
    host: str
    netmask: str = ""

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    def reaches(self, host: str) -> bool:
        """Return whether an address is in the network of this interface."""
        if not self.netmask or ":" in self.host or ":" in host:
            return False
        network = ipaddress.ip_network(f"{self.host}/{self.netmask}", strict=False)
        return ipaddress.ip_address(host) in network


def own_interfaces(node: str) -> list[Interface]:
    """Return this machine's interfaces, the one first that others reach it by.

    That is the one that GLOO_SOCKET_IFNAME names, or that the ssh connection came in by, or that the node's
    name stands for.

    Args:
        node: the name by which the notebook has reached this machine.
    """
    states, found = psutil.net_if_stats(), []
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for address in addresses:
            if address.family == socket.AF_INET and states[name].isup:
                found.append(Interface(name, address.address, address.netmask or ""))
    wanted = os.environ.get("GLOO_SOCKET_IFNAME")
    reached_by = [*os.environ.get("SSH_CONNECTION", "").split()[2:3], *_resolved(node)]

    def preference(interface: Interface) -> tuple[bool, bool, bool]:  # False comes first
        return interface.name != wanted, interface.host not in reached_by, interface.is_loopback

    return sorted(found, key=preference)


def _resolved(node: str) -> list[str]:
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(node, None, socket.AF_INET)]
    except OSError:  # a name that only the launcher knows
        return []


def chosen(nodes: Sequence[tuple[str, Sequence[Interface]]]) -> list[Interface]:
    """Choose an interface for each node, one by which the other nodes can reach it.

    Args:
        nodes: the name and the interfaces of each, the preferred one first.

    Raises:
        StartError: a node has none, or only one that leads nowhere else.
    """
    for name, interfaces in nodes:
        if not interfaces:
            raise StartError(f"The node {name} has no network interface with an IPv4 address.")
    first = [interfaces[0] for _, interfaces in nodes]
    if all(interface.is_loopback for interface in first):  # all are one machine
        return first
    return [
        _in_a_network_with_others(name, interfaces, [other for other in first if other is not interfaces[0]])
        for name, interfaces in nodes
    ]


def _in_a_network_with_others(
    name: str, interfaces: Sequence[Interface], others: Sequence[Interface]
) -> Interface:
    outside = [interface for interface in interfaces if not interface.is_loopback]
    if not outside:
        raise StartError(
            f"The node {name} is reached by its loopback interface, but the other nodes are other machines. "
            "Use the name by which they know it, or set GLOO_SOCKET_IFNAME there."
        )
    if interfaces[0].is_loopback:  # "localhost": the notebook's own machine
        for interface in outside:
            if any(interface.reaches(other.host) for other in others):
                return interface
    return outside[0]
