"""How the ranks of a sandbox find the witness of their world."""

from __future__ import annotations

import json
import os
import socket

from fourranks.protocol.messages import Settings


class Meeting:
    """The place where ranks hand their connections to their witness, before they run students' code."""

    def __init__(self) -> None:
        self._inbox, self._outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def filenos(self) -> tuple[int, int]:
        return self._inbox.fileno(), self._outbox.fileno()

    def fileno(self) -> int:
        """Return the end that is readable when a rank has come."""
        return self._inbox.fileno()

    def close(self) -> None:
        self._inbox.close()
        self._outbox.close()

    def hand_over(self, settings: Settings, connection: socket.socket) -> None:
        """Hand over a rank's connection. Worlds that live at one time differ in the port of their store."""
        whose = [settings.store_port, settings.rank, os.getpid()]
        socket.send_fds(self._outbox, [json.dumps(whose).encode()], [connection.fileno()])

    def receive(self, settings: Settings) -> tuple[int, int, socket.socket] | None:
        """Return rank, pid and connection of the next rank to its witness; None if it is of another world."""
        text, descriptors, _, _ = socket.recv_fds(self._inbox, 1000, 1)
        port, rank, pid = json.loads(text)
        connection = socket.socket(fileno=descriptors[0])
        return (rank, pid, connection) if port == settings.store_port else None
