"""The owner of the other end of a connection: on this machine, this user or another one.

Ports on the loopback interface are open to every user of the machine, and neither Gloo nor torch's store asks
who connects. Linux knows (sock_diag, man 7 sock_diag); each process group asks it when its ranks have
connected, before anything is communicated. In a world over several nodes, the other end of a connection that
leaves the machine must be at the address of one of them.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..protocol.messages import Location
from .rescue import Connection, opened

PATIENCE = 30.0  # seconds for the other end to accept a connection; a busy machine needs milliseconds
_POLL = 0.001

# From <linux/netlink.h>, <linux/sock_diag.h> and <linux/inet_diag.h>.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _ALL_STATES = 4, 20, 1, 0xFFFFFFFF
Address: TypeAlias = tuple[Any, ...]  # as sockets have it: host, port, and more with IPv6
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, sender
_REQUEST = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_SOCKET = struct.Struct("!HH16s16sI8s")  # own port, other's port, own address, other's, interface, cookie
_ANSWER = struct.Struct("=4x48x12xII")  # (family to timer, the socket, its queues,) user, inode


@dataclass(frozen=True)
class _ConnectionEnd:
    """One end of a connection."""

    user: int
    inode: int  # 0 until it is accepted, and when it is closed


# Of the other nodes of the world; None where all ranks are on this machine.
_hosts: frozenset[str] | None = None


def expect(location: Location | None) -> None:
    """Take note of which other machines this rank's connections may lead to."""
    global _hosts
    _hosts = None if location is None else frozenset(location.hosts) - {location.hosts[location.node]}


def require_own(connections: Iterable[Connection]) -> None:
    """Make sure that these connections lead to processes of this user, or to other nodes of the world.

    Where all ranks are on this machine, a connection that leads elsewhere is none of a group's: code has
    opened it meanwhile. Without sock_diag there is no telling who is at the other end on this machine.

    Raises:
        PermissionError: one leads elsewhere.
    """
    try:
        diagnostics = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    except (AttributeError, OSError):  # macOS, or a sandbox that forbids it
        return
    with diagnostics:
        diagnostics.connect((0, 0))
        for connection in connections:
            _require_own(diagnostics, connection)


def _require_own(diagnostics: socket.socket, connection: Connection) -> None:
    """Wait until the other end has been accepted, or its owner does not matter; then look at the owner."""
    deadline = time.monotonic() + PATIENCE
    while (end := _other_end(diagnostics, connection)) and not end.inode:
        if time.monotonic() > deadline:
            raise _leads_to(connection, "a process that is unknown")
        time.sleep(_POLL)
    if end and end.user != os.getuid():
        raise _leads_to(connection, f"a process of the user {end.user}")


def _leads_to(connection: Connection, whom: str) -> PermissionError:
    return PermissionError(f"a connection leads to port {connection.peer_port}, to {whom}")


def _other_end(diagnostics: socket.socket, connection: Connection) -> _ConnectionEnd | None:
    """Return the other end; None if the connection is over, or its owner does not matter or cannot be known.

    NCCL closes connections when its ranks have found each other, perhaps in this moment.

    Raises:
        PermissionError: it leads to another machine, which is no node of this world.
    """
    with opened(connection) as sock:
        if sock is None:
            return None
        try:
            family, own, other = sock.family, sock.getsockname(), sock.getpeername()
        except OSError:  # its other end is gone
            return None
    here, there = (address[0].removeprefix("::ffff:") for address in (own, other))
    if there != here:  # as both are if the other end is on this machine, too
        if _hosts is None or there in _hosts:  # groups and store of this machine's ranks are on the loopback
            return None
        raise PermissionError(f"a connection leads to {there}, which is no node of this world")
    end = _look_up(diagnostics, family, other, own)
    if not end.inode and not _look_up(diagnostics, family, own, other).inode:
        return None  # a kernel, or a sandbox, that does not even tell of our own end
    return end


def _look_up(diagnostics: socket.socket, family: int, own: Address, other: Address) -> _ConnectionEnd:
    """Return the end of a connection that has these addresses."""
    addresses = socket.inet_pton(family, own[0]), socket.inet_pton(family, other[0])
    place = _SOCKET.pack(own[1], other[1], *addresses, 0, b"\xff" * 8)
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + place
    length = _HEADER.size + len(body)
    diagnostics.send(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + body)
    reply = diagnostics.recv(4096)
    if _HEADER.unpack_from(reply)[1] != _SOCK_DIAG_BY_FAMILY:  # an error: there is no such connection
        return _ConnectionEnd(0, 0)
    return _ConnectionEnd(*_ANSWER.unpack_from(reply, _HEADER.size))
