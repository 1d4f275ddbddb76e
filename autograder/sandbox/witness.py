"""A process beside the ranks of a world that makes their calls, and notes them where no rank can.

A rank runs students' code, and code can change whatever its process knows: also what it has noted of its
calls. So a rank in a sandbox has no connection to another. Its process groups (`witnessed`) hand each call to
this process, in which no student's code runs; this one holds the connections of Gloo, makes the call and
enters it in the `ledger`. What a rank sends here is read by `frames`; nonsense ends the connection.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from autograder.sandbox import frames, isolation
from autograder.sandbox.arguments import dense, from_plain
from autograder.sandbox.ledger import Ledger
from autograder.sandbox.witnessed import Unconnected, WitnessedGroup
from fourranks import forked_zygote
from fourranks.messages import Channel, Settings
from fourranks.rank import rescue
from fourranks.rank.arguments import OPERATIONS, call_on, describe, tensors_in
from fourranks.rank.main import become_rank
from fourranks.trace import Call

SHARES_FILES = "FOUR_RANKS_SHARES_FILES"  # in a rank's environment: "True" where its exercise is files
MOST_WAITS = 1000  # that the ranks may have under way at a time
_Answer = tuple[dict[str, Any], Sequence[torch.Tensor]]


class Meeting:
    """Where ranks hand their connections to the witness of their world, before they run students' code."""

    def __init__(self) -> None:
        self._inbox, self._outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def filenos(self) -> tuple[int, int]:
        return self._inbox.fileno(), self._outbox.fileno()

    def close(self) -> None:
        self._inbox.close()
        self._outbox.close()

    def hand_over(self, settings: Settings, connection: socket.socket) -> None:
        """A rank's part. Worlds that live at the same time differ in the port of their store."""
        whose = [settings.store_port, settings.rank, os.getpid()]
        socket.send_fds(self._outbox, [json.dumps(whose).encode()], [connection.fileno()])

    def collect(self, settings: Settings) -> list[tuple[int, int, socket.socket]]:
        """The witness' part: rank, pid and connection of each rank of this world."""
        ranks = []
        while len(ranks) < settings.world_size:
            text, descriptors, _, _ = socket.recv_fds(self._inbox, 1000, 1)
            port, rank, pid = json.loads(text)
            connection = socket.socket(fileno=descriptors[0])
            if port == settings.store_port:  # else of a world that was ended before it had begun
                ranks.append((rank, pid, connection))
        return ranks


def become_witnessed_rank(
    ledger: Ledger, meeting: Meeting, settings: Settings, channel: Channel, board: int, listener: int | None
) -> None:
    """Become a rank whose calls a witness makes. The last four arguments are those of `become_rank`."""
    rank = os.getpid()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if settings.rank == 0 and os.fork() == 0:
        try:
            channel.close()
            os.close(board)
            os.close(listener)
            forked_zygote.end_with(rank)
            _bear_witness(ledger, meeting, settings)
        finally:
            os._exit(0)
    ours, theirs = socket.socketpair()
    with theirs:
        meeting.hand_over(settings, theirs)
    meeting.close()
    ledger.close()
    if listener is not None:
        os.close(listener)
    Unconnected.prepare()
    isolation.keep_apart(shares_files=settings.environment[SHARES_FILES] == "True")
    isolation.make_no_sockets()  # before there are threads, which would keep their rights
    become_rank(settings, channel, board, None, functools.partial(WitnessedGroup, connection=ours))


def _bear_witness(ledger: Ledger, meeting: Meeting, settings: Settings) -> None:
    """Serve all ranks of a world, in one thread, until they are gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    ranks = meeting.collect(settings)
    meeting.close()
    world = World(ledger)
    with selectors.DefaultSelector() as selector:
        for rank, pid, connection in ranks:
            selector.register(connection, selectors.EVENT_READ, Witness(world, rank, pid, connection))
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.serve():
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


@dataclass
class World:
    """What the ranks of a world have in common.

    Attributes:
        ledger: where calls are noted.
        ranks: of each group by its name, the global rank of each rank that has joined.
    """

    ledger: Ledger
    ranks: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    store: dist.Store = field(default_factory=dist.HashStore)
    device: Any = field(default_factory=dist.ProcessGroupGloo.create_default_device)
    waits: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_WAITS))


@dataclass
class _Group:
    """A process group, as one of its ranks has it, and its global ranks in group order."""

    inner: dist.ProcessGroup
    ranks: tuple[int, ...]


@dataclass
class _Made:
    """A call that was made."""

    call: Call
    work: dist.Work
    outputs: list[torch.Tensor]


class Witness:
    """Makes the calls of one rank.

    Args:
        world: of the rank.
        rank: its global rank.
        pid: of its process, by which the ledger knows it.
        connection: to it.
    """

    def __init__(self, world: World, rank: int, pid: int, connection: socket.socket) -> None:
        self._world, self._rank, self._pid, self._connection = world, rank, pid, connection
        self._sending = threading.Lock()
        self._groups: dict[str, _Group] = {}
        self._received: dict[int, _Made] = {}  # nobody has waited for these yet

    def serve(self) -> bool:
        """Do the next thing that the rank asks for; False when it is gone, or asks for nonsense."""
        try:
            self._do(*frames.receive(self._connection))
        except (EOFError, OSError):
            return False
        except Exception:
            traceback.print_exc()
            return False
        return True

    def _do(self, request: dict[str, Any], sent: list[torch.Tensor]) -> None:
        match request:
            case {"call": str(name), "group": str(key), "arguments": list(), "keywords": dict()}:
                self._call(request, name, self._groups[key], sent)
            case {"wait": int(number)}:
                self._later(number, self._end, number, self._received.pop(number))
            case {"join": str(key), "rank": int(rank), "size": int(size), "timeout": float(timeout)}:
                self._later(request["id"], self._join, key, rank, size, timedelta(seconds=timeout))
            case {"cut": True}:
                rescue.cut(rescue.tcp_connections())
                self._answer(request["id"], {})
            case _:
                raise frames.FrameError("no request")

    def _later(self, number: int, work: Callable[..., _Answer], *arguments: Any) -> None:
        """Do what may take long while the rank asks for more."""
        self._world.waits.submit(self._try, number, work, *arguments)

    def _try(self, number: int, work: Callable[..., _Answer], *arguments: Any) -> None:
        try:
            answer, outputs = work(*arguments)
        except Exception as error:
            answer, outputs = {"error": str(error), "exception": type(error).__name__}, []
        self._answer(number, answer, outputs)

    def _answer(self, number: int, answer: dict[str, Any], outputs: Sequence[torch.Tensor] = ()) -> None:
        with self._sending, contextlib.suppress(OSError):  # the rank is gone
            frames.send(self._connection, {"id": number} | answer, outputs)

    # --- groups ------------------------------------------------------------------------------------------

    def _join(self, key: str, rank: int, size: int, timeout: timedelta) -> _Answer:
        """Meet the group's other ranks."""
        ranks = self._world.ranks[key]
        if ranks.setdefault(rank, self._rank) != self._rank:
            raise ValueError(f"two ranks are rank {rank} of the same group")
        store = dist.PrefixStore(key, self._world.store)
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._threads, options._timeout = [self._world.device], 1, timeout
        backend = dist.ProcessGroupGloo(store, rank, size, options)
        inner = dist.ProcessGroup(store, rank, size)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
        inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._groups[key] = _Group(inner, tuple(ranks[each] for each in range(size)))
        return {}, []

    # --- calls -------------------------------------------------------------------------------------------

    def _call(self, request: dict[str, Any], name: str, group: _Group, sent: list[torch.Tensor]) -> None:
        number, arguments = request["id"], from_plain(request["arguments"], sent)
        keywords = {keyword: from_plain(value, sent) for keyword, value in request["keywords"].items()}
        if name == "monitored_barrier":
            self._note(number, call_on(name, "", group.ranks))
            self._later(number, _monitored_barrier, group, arguments)
            return
        call = describe(OPERATIONS[name], "", group.ranks, tuple(arguments))
        self._note(number, call)
        try:
            work = getattr(group.inner, name)(*arguments, **keywords)
        except Exception as error:
            self._answer(number, {"error": str(error), "exception": type(error).__name__})
            return
        if request["acknowledge"]:
            self._answer(number, {"issued": True})
        made = _Made(call, work, [] if call.op == "send" else tensors_in(arguments[:1]))
        if call.op == "recv":  # what has come is handed over when the rank waits for it
            self._received[number] = made
        else:
            self._later(number, self._end, number, made)

    def _note(self, number: int, call: Call) -> None:
        call.start = time.perf_counter()
        self._world.ledger.begins(self._pid, number, call)

    def _end(self, number: int, made: _Made) -> _Answer:
        made.work.wait()
        source = -1
        if made.call.op == "recv":
            source = made.work._source_rank()
            self._world.ledger.ends(self._pid, number, made.call.ranks[source], time.perf_counter())
        return {"source": source}, [dense(output) for output in made.outputs]


def _monitored_barrier(group: _Group, arguments: list[Any]) -> _Answer:
    group.inner.monitored_barrier(*arguments)
    return {"source": -1}, []
