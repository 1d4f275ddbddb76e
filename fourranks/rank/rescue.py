"""Frees a rank that is blocked inside a collective, without losing its variables.

Gloo has no abort. A waiting call fails when the connections that it waits on end: a helper thread
shuts down the TCP sockets that the process groups and their store have opened. NCCL is aborted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from typing import NamedTuple


class Connection(NamedTuple):
    """A connected TCP socket of this process; the inode tells it from a later one on its descriptor."""

    descriptor: int
    inode: int
    own_port: int
    peer_port: int


class SpareDescriptor:
    """A descriptor that is kept back, for a look at connections where the reader's code has used up all."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(OSError):  # the reader's code was faster
            self._descriptor = os.open(os.devnull, os.O_RDONLY)

    @contextlib.contextmanager
    def given_up(self) -> Iterator[None]:
        """Let this block, in one thread at a time, have the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        try:
            yield
        finally:
            self._fill()


# By descriptor: the inode of the socket, and the connection if it is one. Each new group looks at all
# descriptors, and a socket with the same inode need not be opened a second time.
_seen: dict[int, tuple[int, Connection | None]] = {}


def tcp_connections() -> set[Connection]:
    """Return all connected TCP sockets of this process."""
    return {found for descriptor in _open_descriptors() if (found := _connection(descriptor)) is not None}


def cut(connections: set[Connection]) -> None:
    """End both directions of these connections; a wait on one raises an error within milliseconds."""
    for connection in connections:
        with opened(connection) as sock, contextlib.suppress(OSError):  # the other side may have closed it
            if sock is not None:
                sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def opened(connection: Connection) -> Iterator[socket.socket | None]:
    """Open the socket of a connection a second time; gives None if another thread has closed it.

    Its descriptor may be another file's by then.
    """
    try:
        descriptor = os.dup(connection.descriptor)
    except OSError:
        yield None
        return
    if os.fstat(descriptor).st_ino != connection.inode:
        os.close(descriptor)
        yield None
        return
    with socket.socket(fileno=descriptor) as sock:
        yield sock


def _open_descriptors() -> list[int]:
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return [int(name) for name in os.listdir(directory)]


def _connection(descriptor: int) -> Connection | None:
    """Return the socket of a connection, else None: shutting down a listening socket ends the process."""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISSOCK(status.st_mode):
            return None
        inode, connection = _seen.get(descriptor, (-1, None))
        if inode != status.st_ino:
            connection = _open(descriptor, status.st_ino)
            _seen[descriptor] = status.st_ino, connection
        return connection
    except OSError:  # it is closed, or not connected
        return None


def _open(descriptor: int, inode: int) -> Connection | None:
    with socket.socket(fileno=os.dup(descriptor)) as candidate:
        if candidate.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if candidate.type != socket.SOCK_STREAM:  # a name server is asked by UDP
            return None
        return Connection(descriptor, inode, candidate.getsockname()[1], candidate.getpeername()[1])
