"""Messages between the notebook and its ranks.

Each rank has one socket pair with the notebook, inherited at the fork and never listening anywhere. Both ends
are the reader's own processes, so a message is a pickled dataclass behind its length. The file of a large
parcel goes along as a descriptor.
"""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from .bars import Bar
from .calls import Record, Tracing
from .memory import MemoryFile
from .parcel import Parcel
from .places import NotebookCell, Place
from .progress import Progress
from .remote_error import RemoteError

LOOPBACK = "127.0.0.1"  # where ranks and their store listen, if all are on one machine
RANK_NAMES = (
    "rank",
    "world_size",
    "device",
    "torch",
    "dist",
)  # that every rank has from the start
TEXT_LIMIT = 256 * 1024  # characters a rank may show in one cell: a page that people can still scroll


@dataclass(frozen=True)
class Location:
    """Where a rank is in a world over several nodes.

    Attributes:
        node: the number of its node.
        local_rank: its number among the ranks of that node.
        local_world_size: number of these.
        interface: the network interface by which they reach the others.
        hosts: the address of each node.
    """

    node: int
    local_rank: int
    local_world_size: int
    interface: str
    hosts: tuple[str, ...]


@dataclass
class Settings:
    """The notebook's decisions for one rank, before it is forked."""

    rank: int
    world_size: int  # of the moment: a `Form` may change it
    backend: str
    device: str  # as torch names it: "cpu" or "cuda:1"
    store_port: int  # of the rendezvous store
    directory: str
    path: list[str]  # sys.path of the notebook
    environment: dict[str, str] = field(repr=False)
    start_method: str  # "fork" or "spawn"
    ranks_per_gpu: int = 0  # on the GPU that has most of them
    location: Location | None = None  # of a world over several nodes

    @property
    def store_host(self) -> str:
        """The address of the rendezvous store, which rank 0 serves."""
        return LOOPBACK if self.location is None else self.location.hosts[0]

    @property
    def local_world_size(self) -> int:
        """Number of ranks on this rank's machine."""
        return self.world_size if self.location is None else self.location.local_world_size


# --- from the notebook to a rank -------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """Form the default process group, leaving the one before."""

    generation: int  # a number that no earlier group of this world had
    world_size: int


@dataclass(slots=True)
class Virtualize:
    """Become a rank of a world whose other ranks are not there."""

    rank: int
    world_size: int


@dataclass(slots=True)
class Execute:
    """Run a cell's source in the rank's shell."""

    source: str
    execution_count: int | None  # of the notebook's cell, so that tracebacks name it
    trace: Tracing | None


@dataclass(slots=True)
class Run:
    """Call a function; answer with its return value."""

    parcel: Parcel  # of (function, args, kwargs)
    cells: Mapping[str, NotebookCell]  # of the notebook, by file
    trace: Tracing | None


@dataclass(slots=True)
class Launch:
    """Run a script or a module as Python itself does. It is the last that this rank runs."""

    name: str  # the script's path, or the name of the module
    arguments: tuple[str, ...]
    is_module: bool
    backend: str  # of its default process group; "auto" for what it asks for itself
    trace: Tracing | None = None


@dataclass(slots=True)
class Push:
    """Set variables."""

    parcel: Parcel  # of a dict
    cells: Mapping[str, NotebookCell]  # of the notebook, by file


@dataclass(slots=True)
class Pull:
    """Answer with the value of an expression."""

    expression: str


@dataclass(slots=True)
class Interrupt:
    """Raise KeyboardInterrupt in the code that the rank is running."""


@dataclass(slots=True)
class Rescue:
    """Make a collective that the rank is blocked in fail, so that its main thread comes back."""

    everything: bool = (
        False  # not only the connections of its process groups, but all that the rank has opened
    )


@dataclass(slots=True)
class Leave:
    """End this process: as Python does when it has run a program, else when open files are written out."""


@dataclass(slots=True)
class Complete:
    """Answer with what may stand at a place of a cell's source: `RankShell.completions`."""

    source: str
    cursor: int
    number: int = field(default_factory=itertools.count().__next__)


@dataclass(slots=True)
class Inspect:
    """Answer with what is known of a name: `RankShell.inspection`."""

    name: str
    detail_level: int
    omit_sections: tuple[str, ...]
    number: int = field(default_factory=itertools.count().__next__)


@dataclass(slots=True)
class Probe:
    """Answer at once with a `State`, even while the main thread is busy."""

    number: int  # for the answer to repeat
    detailed: bool  # with the rank's recent calls, which cost a busy rank half a millisecond


# --- from a rank to the notebook -------------------------------------------------------------------------


@dataclass(slots=True)
class Stream:
    """Text that was printed."""

    name: str  # "stdout" or "stderr"
    text: str
    is_raw: bool = False  # by C code or a child process, not through sys.stdout or sys.stderr


@dataclass(slots=True)
class Display:
    """A rich value: a figure, a table, the last expression of a cell."""

    data: dict[str, Any]  # by MIME type
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    update: bool = False


@dataclass(slots=True)
class Clear:
    """The rank called `clear_output`."""

    wait: bool


@dataclass(slots=True)
class Done:
    """The end of a request."""

    error: RemoteError | None = None
    parcel: Parcel | None = None  # of what Run returned or Pull found
    record: Record | None = None  # of a traced cell
    dropped: int = 0  # characters printed beyond the limit
    bars: tuple[Bar, ...] = ()  # of the cell's loops
    number: int = 0  # of the report that was asked for
    gpu_bytes: int = 0  # that the rank's tensors take on its GPU
    left_group: bool = False  # the rank has no default process group any more
    broke_group: bool = False  # a call that failed has broken the default process group


@dataclass(slots=True)
class Answer:
    """Reply to a Complete or an Inspect."""

    number: int  # of the question: an earlier one may have been given up
    value: Any


@dataclass(slots=True)
class State:
    """The activity of a rank now."""

    busy: bool
    progress: Progress
    where: str = ""  # the line of the reader's code that the main thread is in
    places: dict[tuple[str, int], Place] = field(default_factory=dict)  # of the progress' calls
    cells: dict[str, str] = field(default_factory=dict)  # the text of those that these lines are in, by file
    at: float = field(default_factory=time.perf_counter)  # when; the ranks' clock is the notebook's, too
    bars: tuple[Bar, ...] = ()  # of the cell's loops
    postponed: bool = False  # the rank is interrupted as soon as an import, or a call of C code, ends
    handling: bool = False  # the cell's code is in an `except` or a `finally` that an interrupt has led to
    telling: bool = False  # the cell has raised, and the rank is making the text of its error
    number: int = 0  # of the report that was asked for


# A rank answers each with Done, one after another.
Request: TypeAlias = Form | Virtualize | Execute | Run | Launch | Push | Pull
ToRank: TypeAlias = Request | Interrupt | Rescue | Leave | Complete | Inspect | Probe
FromRank: TypeAlias = Stream | Display | Clear | Done | Answer | State

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 16
_FILES = 8  # descriptors that may come with one chunk; Linux never hands out those of two messages together
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
