"""A channel carries messages between two processes: the notebook and a rank, or the zygote.

Each rank has one socket pair with the notebook, inherited at the fork and never listening anywhere. Both ends
are the reader's own processes, so a message is a pickled dataclass behind its length. The file of a large
parcel goes along as a descriptor.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
import struct
import threading
from collections import deque
from dataclasses import replace
from typing import Any

from .memory import MemoryFile

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 16
_FILES = 8  # descriptors that may come with one chunk; Linux never hands out those of two messages together
_HANDED_ON = 5  # descriptors that a message may bring along, for the other side to keep
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Channel:
    """Messages over one end of a socket pair.

    The rank's end blocks (`send`, `receive`); the notebook's end never does (`send` queues what does not fit,
    `flush` and `receive_available` go on with it).
    """

    def __init__(self, sock: socket.socket, blocking: bool) -> None:
        self.sock = sock
        self.sock.setblocking(blocking)
        self._lock = threading.RLock()  # a signal handler, in the middle of a message, may send or fork
        self._incoming = bytearray()
        self._files: deque[MemoryFile] = deque()  # that arrived with messages not yet complete
        self._outgoing: deque[tuple[memoryview, MemoryFile | None]] = deque()
        self._in_turn: deque[tuple[Any, memoryview]] = deque()  # of a blocking end, each with its frame
        self._is_sending = False
        self.at_end = False  # the other side has closed

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def serve_forks(self) -> None:
        """Let no other thread be in the middle of a message when this process forks: the child sends, too."""
        hold, let_go = self._lock.acquire, self._lock.release
        os.register_at_fork(before=hold, after_in_parent=let_go, after_in_child=let_go)

    def send(self, message: Any) -> None:
        """Send a message, or queue what a non-blocking end cannot take now."""
        frame = _frame(message)
        with self._lock:
            if self.sock.getblocking():
                self._in_turn.append((message, frame))
                self._send_in_turn()
            else:
                self._outgoing.append((frame, _file(message)))
        self.flush()

    @property
    def wants_to_send(self) -> bool:
        return bool(self._outgoing)

    def flush(self) -> None:
        """Send as much of the queue as the other side takes."""
        with self._lock:
            while self._outgoing:
                frame, file = self._outgoing[0]
                try:
                    sent = self._send(frame, file)
                except BlockingIOError:
                    return
                except OSError:  # the other side is gone; receiving will tell
                    self._outgoing.clear()
                    return
                if sent < len(frame):
                    self._outgoing[0] = frame[sent:], None
                else:
                    self._outgoing.popleft()

    def receive(self) -> Any:
        """Return the next message of a blocking end.

        Raises:
            EOFError: the other side has closed.
        """
        while (message := self._next()) is None:
            if not self._receive():
                raise EOFError("the other side has closed")
        return message

    def receive_available(self) -> list[Any]:
        """Return all messages that have arrived; sets `at_end` when no more will come. Never blocks."""
        try:
            self.at_end = not self._receive()
        except BlockingIOError:
            pass
        except OSError:
            self.at_end = True
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def send_with_descriptors(self, message: Any, descriptors: list[int]) -> None:
        """Send a message together with descriptors, waiting until the other end has room for it."""
        self.sock.setblocking(True)
        socket.send_fds(self.sock, [_frame(message)], descriptors)
        self.sock.setblocking(False)

    def receive_with_descriptors(self) -> tuple[Any, list[int]]:
        """Return the next message of a blocking end, and the descriptors that came along; None at the end."""
        head, descriptors, _, _ = socket.recv_fds(self.sock, _LENGTH.size, _HANDED_ON)
        if not head:
            return None, descriptors
        (length,) = _LENGTH.unpack(head)
        body = b""
        while len(body) < length:
            chunk = self.sock.recv(length - len(body))
            if not chunk:
                return None, []
            body += chunk
        return pickle.loads(body), descriptors

    def _send_in_turn(self) -> None:
        """Send all messages, one after the other; those of a signal handler when the one under way is out."""
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while self._in_turn:
                self._send_all(*self._in_turn.popleft())
        finally:
            self._is_sending = False

    def _send_all(self, message: Any, frame: memoryview) -> None:
        """Send a whole message; Linux limits how many descriptors of a user are on their way."""
        try:
            sent = self._send(frame, _file(message))
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            frame, sent = _frame(replace(message, parcel=message.parcel.whole())), 0
        self.sock.sendall(frame[sent:])

    def _send(self, frame: memoryview, file: MemoryFile | None) -> int:
        if file is None:
            return self.sock.send(frame)
        return socket.send_fds(self.sock, [frame], [file.descriptor])

    def _receive(self) -> int:
        chunk, descriptors, _, _ = socket.recv_fds(self.sock, _CHUNK, _FILES, _CLOSE_ON_EXEC)
        self._files += map(MemoryFile, descriptors)
        self._incoming += chunk
        return len(chunk)

    def _next(self) -> Any:
        if len(self._incoming) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._incoming)
        end = _LENGTH.size + length
        if len(self._incoming) < end:
            return None
        try:
            with memoryview(self._incoming)[_LENGTH.size : end] as body:
                message = pickle.loads(body)
        finally:  # one that cannot be read must not keep those behind it from being read
            del self._incoming[:end]
        if (parcel := getattr(message, "parcel", None)) is not None and parcel.content is None:
            parcel.file = self._files.popleft()
        return message


def _frame(message: Any) -> memoryview:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return memoryview(_LENGTH.pack(len(body)) + body)


def _file(message: Any) -> MemoryFile | None:
    """Return the file that a message takes along."""
    parcel = getattr(message, "parcel", None)
    return parcel.file if parcel is not None else None
