"""Many streams of bytes over one connection: the sockets and pipes of a node's ranks.

`relay` and `agent` each hold one end. Each stream has a window, so that output that the notebook does not
read holds up its own rank and no other. The content of a stream is not looked at. Files in memory that
travel with a message are sent ahead of it, and made again at the other end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..protocol import memory
from ..protocol.memory import MemoryFile
from .frames import FrameConnection, FrameKind

WINDOW = 1 << 22  # bytes of a stream that are under way: the speed of one is this, divided by a round trip
CONGESTED = 1 << 20  # bytes that wait for the connection; streams are not read meanwhile
CHUNK = 1 << 16
_FILES = 8  # descriptors that may come with one chunk, as in `protocol.channel`
_SIZE = struct.Struct("!Q")
_EMPTY = memoryview(b"")  # of an empty file, which cannot be mapped


@dataclass
class _Piece:
    """One thing to be sent: bytes that were read, or a file."""

    data: memoryview
    file: MemoryFile | None = None  # that the bytes lie in
    begun: bool = False


@dataclass(eq=False)
class ByteStream:
    """This machine's end of one stream.

    Attributes:
        number: of the stream, the same at both ends.
        descriptor: of the socket or pipe.
        sock: the socket, if it is one: it is read and written. A pipe is only one of both.
        reads: whether bytes come from here.
        when_over: called when all that was read has been sent, and the end of it.
    """

    number: int
    descriptor: int
    sock: socket.socket | None = None
    reads: bool = True
    when_over: Callable[[], None] = lambda: None
    room: int = WINDOW
    outgoing: deque[_Piece] = field(default_factory=deque)  # read here, to be sent
    incoming: deque[tuple[memoryview, list[MemoryFile]]] = field(default_factory=deque)  # to be written here
    files: list[MemoryFile] = field(default_factory=list)  # that arrived ahead of their message
    missing: int = 0  # bytes of the last of these files
    read_all: bool = False
    received_all: bool = False


class Multiplexer:
    """One end of the connection.

    Args:
        source, target: descriptors, not the same, that it comes from and goes to.
        on_message: called with each message of the other end.
    """

    def __init__(self, source: int, target: int, on_message: Callable[[Any], None]) -> None:
        self._frames, self._on_message = FrameConnection(source, target), on_message
        self._selector = selectors.DefaultSelector()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._streams: dict[int, ByteStream] = {}

    @property
    def at_end(self) -> bool:
        """Whether the other end is gone."""
        return self._frames.at_end

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call a function whenever this descriptor is readable."""
        self._callbacks[descriptor] = callback

    def add(self, stream: ByteStream) -> None:
        """Carry a stream whose other end has the same number."""
        os.set_blocking(stream.descriptor, False)
        self._streams[stream.number] = stream

    def post(self, message: Any) -> None:
        """Send a message to the other end's `on_message`."""
        self._frames.queue(0, FrameKind.MESSAGE, pickle.dumps(message))
        self._frames.send()

    def step(self, timeout: float) -> None:
        """Wait for something to happen, for so many seconds at most, and do what it asks for."""
        self._select()
        for key, events in self._selector.select(timeout):
            if key.data is not None:
                key.data()
            elif stream := self._stream_of(key.fd):
                self._serve(stream, events)

    def _serve(self, stream: ByteStream, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write(stream)
        if events & selectors.EVENT_READ and self._may_read(stream):
            self._read(stream)

    def _stream_of(self, descriptor: int) -> ByteStream | None:
        return next((each for each in self._streams.values() if each.descriptor == descriptor), None)

    def _select(self) -> None:
        """Wait for what can be dealt with now."""
        wanted: dict[int, tuple[int, Callable[[], None] | None]] = {
            descriptor: (selectors.EVENT_READ, callback) for descriptor, callback in self._callbacks.items()
        }
        for stream in self._streams.values():
            reads = selectors.EVENT_READ if self._may_read(stream) else 0
            writes = selectors.EVENT_WRITE if stream.incoming else 0
            if reads | writes:
                wanted[stream.descriptor] = reads | writes, None
        wanted[self._frames.source] = selectors.EVENT_READ, self._receive
        if self._frames.queued:
            wanted[self._frames.target] = selectors.EVENT_WRITE, self._frames.send
        for key in list(self._selector.get_map().values()):
            if wanted.get(key.fd) != (key.events, key.data):
                self._selector.unregister(key.fd)
            else:
                del wanted[key.fd]
        for descriptor, (events, callback) in wanted.items():
            self._selector.register(descriptor, events, callback)

    # --- the connection ----------------------------------------------------------------------------------

    def _receive(self) -> None:
        for number, kind, body in self._frames.receive():
            self._take(number, kind, body)

    def _take(self, number: int, kind: FrameKind, body: bytes) -> None:
        if kind is FrameKind.MESSAGE:
            self._on_message(pickle.loads(body))
            return
        if (stream := self._streams.get(number)) is None:  # this end is gone already
            return
        match kind:
            case FrameKind.DATA:
                stream.incoming.append((memoryview(body), stream.files))
                stream.files = []
                self._write(stream)
            case FrameKind.FILE:
                stream.files.append(MemoryFile(memory.create()))
                (stream.missing,) = _SIZE.unpack(body)
            case FrameKind.BYTES:
                self._write_file(stream, body)
            case FrameKind.ROOM:
                stream.room += _SIZE.unpack(body)[0]
                self._advance(stream)
            case FrameKind.END:
                stream.received_all = True
                self._close_if_over(stream)

    # --- from a stream to the connection -----------------------------------------------------------------

    def _may_read(self, stream: ByteStream) -> bool:
        return (
            stream.reads
            and not stream.read_all
            and not stream.outgoing
            and stream.room > 0
            and self._frames.queued < CONGESTED
        )

    def _read(self, stream: ByteStream) -> None:
        descriptors: list[int] = []
        try:
            if stream.sock is None:
                chunk = os.read(stream.descriptor, CHUNK)
            else:
                chunk, descriptors, _, _ = socket.recv_fds(stream.sock, CHUNK, _FILES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        for file in map(MemoryFile, descriptors):
            stream.outgoing.append(_Piece(file.map() if os.fstat(file.descriptor).st_size else _EMPTY, file))
        if chunk:
            stream.outgoing.append(_Piece(memoryview(chunk)))
        else:
            stream.read_all = True
        self._advance(stream)

    def _advance(self, stream: ByteStream) -> None:
        """Send what was read, as far as there is room at the other end."""
        while stream.outgoing and stream.room > 0:
            piece = stream.outgoing[0]
            if piece.file is not None and not piece.begun:
                self._frames.queue(stream.number, FrameKind.FILE, _SIZE.pack(len(piece.data)))
                piece.begun = True
            part = piece.data[: min(CHUNK * 4, stream.room)]
            stream.room -= len(part)
            self._frames.queue(stream.number, FrameKind.DATA if piece.file is None else FrameKind.BYTES, part)
            piece.data = piece.data[len(part) :]
            if not piece.data:
                stream.outgoing.popleft()
        if stream.read_all and not stream.outgoing:
            self._frames.queue(stream.number, FrameKind.END)
            self._close_if_over(stream)
        self._frames.send()

    # --- from the connection to a stream -----------------------------------------------------------------

    def _write_file(self, stream: ByteStream, body: bytes) -> None:
        file = stream.files[-1]
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(file.descriptor, rest) :]
        stream.missing -= len(body)
        if stream.missing == 0:
            memory.finish(file.descriptor)
        self._make_room(stream, len(body))

    def _write(self, stream: ByteStream) -> None:
        written = 0
        while stream.incoming:
            data, files = stream.incoming[0]
            try:
                if stream.sock is None:
                    count = os.write(stream.descriptor, data)
                elif files:
                    count = socket.send_fds(stream.sock, [data], [file.descriptor for file in files])
                else:
                    count = stream.sock.send(data)
            except BlockingIOError:
                break
            except OSError:  # nobody reads it any more
                count = len(data)
            written += count
            if count < len(data):
                stream.incoming[0] = data[count:], []
            else:
                stream.incoming.popleft()
        if written:
            self._make_room(stream, written)
        self._close_if_over(stream)

    def _make_room(self, stream: ByteStream, nbytes: int) -> None:
        self._frames.queue(stream.number, FrameKind.ROOM, _SIZE.pack(nbytes))
        self._frames.send()

    def _close_if_over(self, stream: ByteStream) -> None:
        """Close this machine's end when nothing is left to be read, sent or written."""
        sent_all = stream.read_all and not stream.outgoing
        if not (sent_all or (stream.received_all and not stream.incoming)):
            return
        if self._streams.pop(stream.number, None) is None:
            return
        if stream.received_all and stream.reads and not stream.read_all:
            self._frames.queue(stream.number, FrameKind.END)
        with contextlib.suppress(KeyError):
            self._selector.unregister(stream.descriptor)
        if stream.sock is not None:
            stream.sock.close()
        else:
            os.close(stream.descriptor)
        stream.when_over()
