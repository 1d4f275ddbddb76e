"""Bytes that the sockets of a user's processes have received, as Linux counts them (man 7 sock_diag)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

# From <linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h> and <linux/tcp.h>.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_INFO = 2
_CONNECTED = 0xFFF & ~(1 << 3 | 1 << 6 | 1 << 10)  # states: not the rests of old connections, nor listening
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, sender
_REQUEST = struct.Struct("=BBBBI48x")  # family, protocol, extensions, padding, states, (which socket)
_SOCKET = struct.Struct("=4x40xQ12xII")  # (family to timer, addresses,) cookie, (timer, queues,) user, inode
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_BYTES_RECEIVED = struct.Struct("=128xQ")  # in tcp_info
_LARGEST = 1 << 16  # bytes of an answer


@dataclass(frozen=True)
class CountedSocket:
    """A socket of TCP's, and how many bytes it has received."""

    cookie: int
    user: int
    inode: int
    received: int


class ReceivedBytes:
    """Counts the bytes that some sockets receive, but for those between the last look and a socket's end."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # by cookie
        self._total = 0

    def look(self, counted: Collection[CountedSocket]) -> int:
        """Return the bytes that all sockets have received so far, those that are closed by now too."""
        self._total += sum(one.received - self._known.get(one.cookie, 0) for one in counted)
        self._known = {one.cookie: one.received for one in counted}
        return self._total


def sockets() -> Iterator[CountedSocket]:
    """Yield the connections by TCP of this network.

    Raises:
        OSError: Linux, or what is in its place, does not tell.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as diagnostics:
        for family in (socket.AF_INET, socket.AF_INET6):
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _CONNECTED)
            head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0)
            diagnostics.send(head + body)
            yield from map(_counted, _answers(diagnostics))


def _answers(diagnostics: socket.socket) -> Iterator[memoryview]:
    """Yield what is told of each socket."""
    while True:
        reply = memoryview(diagnostics.recv(_LARGEST))
        while reply:
            length, kind, *_ = _HEADER.unpack_from(reply)
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError("Linux does not tell of its sockets (sock_diag)")
            yield reply[_HEADER.size : length]
            reply = reply[_aligned(length) :]


def _counted(answer: memoryview) -> CountedSocket:
    cookie, user, inode = _SOCKET.unpack_from(answer)
    received, attributes = 0, answer[_SOCKET.size :]
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _INFO and length >= _ATTRIBUTE.size + _BYTES_RECEIVED.size:
            (received,) = _BYTES_RECEIVED.unpack_from(attributes, _ATTRIBUTE.size)
        attributes = attributes[max(_ATTRIBUTE.size, _aligned(length)) :]
    return CountedSocket(cookie, user, inode, received)


def _aligned(length: int) -> int:
    return length + -length % 4
