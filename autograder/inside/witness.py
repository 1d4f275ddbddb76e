"""A process beside the ranks of a world that makes their calls, and notes them where no rank can.

A rank runs students' code, and code can change whatever its process knows: also what it has noted of its
calls. So a rank in a sandbox has no connection to another. Its process groups (`witnessed`) hand each call to
this process, in which no student's code runs; this one holds the connections of Gloo, makes the call and
enters it in the `ledger`. What a rank sends here is read by `frames`; nonsense ends the connection.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
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

from autograder.inside import forked_zygote, frames, isolation
from autograder.inside.arguments import dense, from_plain
from autograder.inside.footprint import Footprint, Watch
from autograder.inside.ledger import Ledger
from autograder.inside.moments import GREW, Moment
from autograder.inside.witnessed import Unconnected, WitnessedGroup
from fourranks.protocol.messages import Channel, Settings
from fourranks.rank import rescue
from fourranks.rank.describe import call_on, describe, tensors_in
from fourranks.rank.main import become_rank
from fourranks.rank.methods import METHODS, read
from fourranks.trace import Call

KIND = "FOUR_RANKS_KIND"  # of a rank, in its environment: one of these, or none of them
SHARES_FILES = "its exercise is files"
IS_MEASURED = "its memory is measured"
LONGEST_NAME = 100  # characters of a moment's
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
    forked_zygote.keep_only(channel.fileno(), board, ours.fileno())  # nothing that other ranks have, too
    Unconnected.prepare()
    kind = settings.environment[KIND]
    isolation.keep_apart(kind == SHARES_FILES)
    isolation.leave_no_traces(kind == SHARES_FILES)  # before there are threads, which would keep their rights
    if kind == IS_MEASURED:
        isolation.keep_memory_in_sight()
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

    @functools.cached_property
    def watch(self) -> Watch:
        """Begun when the first rank is to be measured."""
        return Watch(self._grew)

    def _grew(self, pid: int, taken: int) -> None:
        self.ledger.marks(pid, Moment(GREW, time.perf_counter(), taken))


@dataclass
class _Group:
    """A process group, as one of its ranks has it, and its global ranks in group order."""

    inner: dist.ProcessGroup
    ranks: tuple[int, ...]


@dataclass
class _Made:
    """A call that was made.

    Attributes:
        number: that the ledger has it under.
        awaited: whether the rank waits for it.
        over: whether it has ended.
    """

    number: int
    call: Call
    work: dist.Work
    outputs: list[torch.Tensor]
    awaited: bool
    over: bool = False


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
        self._sending, self._awaiting = threading.Lock(), threading.Lock()
        self._groups: dict[str, _Group] = {}
        self._under_way: dict[int, _Made] = {}  # what came of these has not been handed over
        self._numbers = itertools.count()  # of calls in the ledger
        self._last = -1  # of the rank's own numbers
        self._footprint: Footprint | None = None

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
            case {"call": str(), "id": int(number), "arguments": list(), "keywords": dict()}:
                self._call(request, self._new(number), sent)
            case {"wait": int(number)}:
                self._wait(number)
            case {"mark": str(name)}:
                taken = self._footprint.most() if self._footprint else None
                self._world.ledger.marks(self._pid, Moment(name[:LONGEST_NAME], time.perf_counter(), taken))
            case {"measure": True, "id": int(number)} if self._footprint is None:
                self._footprint = self._world.watch.add(self._pid)
                self._answer(self._new(number), {})
            case {"settle": True, "id": int(number)}:
                self._answer(self._new(number), {})
            case {"join": str(key), "id": int(number), "rank": int(rank), "size": int(size)}:
                timeout = timedelta(seconds=request["timeout"])
                self._later(self._new(number), self._join, key, rank, size, timeout)
            case {"cut": True, "id": int(number)}:
                rescue.cut(rescue.tcp_connections())
                self._answer(self._new(number), {})
            case _:
                raise frames.FrameError("no request")

    def _new(self, number: int) -> int:
        """The rank's number of a request.

        Raises:
            FrameError: it has been used already.
        """
        if number <= self._last:
            raise frames.FrameError("a number that was used before")
        self._last = number
        return number

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
        if any(self._rank == other and place != rank for place, other in ranks.items()):
            raise ValueError("a rank is in a group once")
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

    def _call(self, request: dict[str, Any], number: int, sent: list[torch.Tensor]) -> None:
        name, group = request["call"], self._groups[request["group"]]
        arguments = from_plain(request["arguments"], sent)
        keywords = {keyword: from_plain(value, sent) for keyword, value in request["keywords"].items()}
        if name == "monitored_barrier":
            self._later(number, self._monitored_barrier, group, arguments)
            return
        operation = METHODS[name]
        meant = read(operation, tuple(arguments), keywords)
        if meant is None:
            self._answer(number, {"error": f"{name}: invalid arguments", "exception": "ValueError"})
            return
        call = describe(operation, "", group.ranks, meant)
        call.start = time.perf_counter()
        try:
            work = getattr(group.inner, name)(*arguments, **keywords)
        except Exception as error:
            self._world.ledger.refuses(self._pid, call)
            self._answer(number, {"error": str(error), "exception": type(error).__name__})
            return
        outputs = [] if call.op == "send" else tensors_in(meant.result)
        made = _Made(next(self._numbers), call, work, outputs, awaited=bool(request["waits"]))
        self._world.ledger.begins(self._pid, made.number, call)
        if request["acknowledge"]:
            self._answer(number, {"issued": True})
        self._under_way[number] = made
        if call.op != "recv":  # what has come is asked for when the rank waits for it
            self._later(number, self._end, number, made)

    def _wait(self, number: int) -> None:
        """Hand over what comes of a call, now that the rank waits for it."""
        with self._awaiting:
            made = self._under_way.get(number)
            if made is None or made.awaited:  # it has failed, or is on its way
                return
            made.awaited = True
            if made.over:
                self._later(number, self._hand_over, number, made)
            elif made.call.op == "recv":
                self._later(number, self._end, number, made)

    def _end(self, number: int, made: _Made) -> _Answer:
        try:
            made.work.wait()
        except Exception:
            self._under_way.pop(number, None)
            raise
        with self._awaiting:
            made.over = True
            if not made.awaited:
                return {"over": True}, []
        return self._hand_over(number, made)

    def _hand_over(self, number: int, made: _Made) -> _Answer:
        self._under_way.pop(number, None)
        source = made.work._source_rank() if made.call.op == "recv" else -1
        peer = made.call.peer if source < 0 else made.call.ranks[source]
        self._world.ledger.ends(self._pid, made.number, peer, time.perf_counter())
        return {"source": source}, [dense(output) for output in made.outputs]

    def _monitored_barrier(self, group: _Group, arguments: list[Any]) -> _Answer:
        call = call_on("monitored_barrier", "", group.ranks)
        call.start, number = time.perf_counter(), next(self._numbers)
        try:
            group.inner.monitored_barrier(*arguments)
        except Exception:
            self._world.ledger.refuses(self._pid, call)
            raise
        self._world.ledger.begins(self._pid, number, call)
        self._world.ledger.ends(self._pid, number, None, time.perf_counter())
        return {"source": -1}, []
