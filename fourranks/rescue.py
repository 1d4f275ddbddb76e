"""Frees a rank that is blocked inside a collective, without losing its variables.

Gloo has no abort. What makes its waiting call fail is the end of the connections that it waits on: a helper
thread shuts down the TCP sockets that the process groups and their store have opened. NCCL is aborted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat


def tcp_connections() -> set[int]:
    """File descriptors of this process that are connected TCP sockets."""
    return {fd for fd in _open_descriptors() if _is_tcp_connection(fd)}


def cut(descriptors: set[int]) -> None:
    """End both directions of these connections; whoever waits on one gets an error within milliseconds."""
    for descriptor in descriptors:
        if _is_tcp_connection(descriptor):
            connection = socket.socket(fileno=os.dup(descriptor))
            with connection, contextlib.suppress(OSError):  # the other side may have been quicker
                connection.shutdown(socket.SHUT_RDWR)


def _open_descriptors() -> list[int]:
    for directory in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(directory):
            return [int(name) for name in os.listdir(directory)]
    return list(range(1024))


def _is_tcp_connection(descriptor: int) -> bool:
    """Listening sockets do not count: shutting one down ends the process."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as candidate:
            if candidate.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            candidate.getpeername()
            return True
    except OSError:
        return False
