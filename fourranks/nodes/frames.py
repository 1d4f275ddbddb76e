"""The one connection to a node as frames: pieces of a stream or messages, each behind a header.

`streams` says what they mean. Neither reading nor writing waits.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum

_LONGEST_READ = 1 << 18  # bytes
_PARTS = 64  # that are written at once
_HEADER = struct.Struct("!IBI")  # stream, kind, bytes that follow


class FrameKind(IntEnum):
    """Kinds of frames, by their content."""

    MESSAGE = 0  # between relay and agent, pickled
    DATA = 1  # of a stream
    FILE = 2  # the size of a file in memory, whose bytes follow
    BYTES = 3  # of the file
    ROOM = 4  # bytes that the other end has passed on, so that as many more may come
    END = 5  # of a stream


class FrameConnection:
    """One end of a connection.

    Args:
        source, target: descriptors, not the same, that it comes from and goes to.

    Attributes:
        source, target: the same.
        queued: bytes that wait to be sent.
        at_end: whether the other end is gone.
    """

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target
        self.queued = 0
        self.at_end = False
        self._received = bytearray()
        self._queue: deque[memoryview] = deque()
        os.set_blocking(source, False)
        os.set_blocking(target, False)

    def receive(self) -> Iterator[tuple[int, FrameKind, bytes]]:
        """Read what has come, and yield the frames that are complete: stream, kind and body."""
        try:
            chunk = os.read(self.source, _LONGEST_READ)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self.at_end = not chunk
        self._received += chunk
        while len(self._received) >= _HEADER.size:
            number, kind, length = _HEADER.unpack_from(self._received)
            if len(self._received) < _HEADER.size + length:
                break
            body = bytes(self._received[_HEADER.size : _HEADER.size + length])
            del self._received[: _HEADER.size + length]
            yield number, FrameKind(kind), body

    def queue(self, number: int, kind: FrameKind, body: bytes | memoryview = b"") -> None:
        """Put a frame behind those that wait to be sent."""
        for part in (memoryview(_HEADER.pack(number, kind, len(body))), memoryview(body)):
            if len(part):
                self._queue.append(part)
                self.queued += len(part)

    def send(self) -> None:
        """Send as much as the other end takes now."""
        while self._queue:
            try:
                sent = os.writev(self.target, [*self._queue][:_PARTS])
            except BlockingIOError:
                return
            except OSError:  # the other end is gone; reading tells so
                self._queue.clear()
                self.queued = 0
                return
            self.queued -= sent
            while sent:
                first = self._queue.popleft()
                if sent < len(first):
                    self._queue.appendleft(first[sent:])
                sent -= min(sent, len(first))
