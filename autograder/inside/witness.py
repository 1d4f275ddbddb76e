"""Makes the calls of the ranks of a world, and notes them where no rank can.

The process groups of ranks (`witnessed`) hand each call to a `Witness`, in a process in which no student's
code runs (`witnessed_rank`). It holds the connections of Gloo, makes the call and enters it in the `ledger`.
`frames` reads what a rank sends, and an invalid request ends the connection.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import select
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
from torch._C._distributed_c10d import HashStore, PrefixStore, Store

from autograder.inside import frames
from autograder.inside.arguments import dense, from_plain
from autograder.inside.footprint import Footprint, MemoryWatch
from autograder.inside.ledger import Ledger
from autograder.inside.moments import GREW, Moment
from autograder.inside.pairing import Collectives, Pairing, Told, Way
from autograder.inside.witnessed import gloo_options
from fourranks.rank import rescue
from fourranks.rank.describe import describe, tensors_in
from fourranks.rank.methods import METHODS, read
from fourranks.rank.work import is_limit
from fourranks.trace import Call

LONGEST_NAME = 100  # characters of a moment's
SMALL = 1 << 15  # bytes of a call that are handed over at once: a fraction of what a socket takes
MOST_WAITS = 1000  # of each kind, that the ranks may have under way at a time
_Answer = tuple[dict[str, Any], Sequence[torch.Tensor]]


@dataclass
class World:
    """Shared by the ranks of a world.

    Attributes:
        ledger: where calls are noted.
        ranks: of each group by its name, the global rank of each rank that has joined.
        waits: for what a rank waits for.
        ahead: for calls that no rank waits for yet, however many: they may need those that are waited for.
    """

    ledger: Ledger
    ranks: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    store: Store = field(default_factory=HashStore)
    device: Any = field(default_factory=dist.ProcessGroupGloo.create_default_device)
    waits: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_WAITS))
    ahead: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_WAITS))
    pairing: Pairing = field(default_factory=Pairing)
    collectives: Collectives = field(default_factory=Collectives)

    @functools.cached_property
    def watch(self) -> MemoryWatch:
        """Begun when the first rank is to be measured."""
        return MemoryWatch(self._grew)

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
        by_future: whether it does so by a future, which it may look at much later.
        over: whether it has ended.
        soon: whether it is sure to end soon; None while another side has not been posted.
    """

    number: int
    call: Call
    work: dist.Work
    outputs: list[torch.Tensor]
    awaited: bool
    by_future: bool = False
    over: bool = False
    soon: bool | None = None

    @property
    def is_small(self) -> bool:
        received = sum(output.numel() * output.element_size() for output in self.outputs)
        return max(self.call.nbytes, received) <= SMALL


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
        self._room = select.poll()  # for an answer, which the rank may not read for long
        self._room.register(connection, select.POLLOUT)
        self._groups: dict[str, _Group] = {}
        self._under_way: dict[int, _Made] = {}  # the results of these have not been handed over
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
            case {"wait": int(number), "by_future": bool(by_future)}:
                self._wait(number, by_future)
            case {"mark": str(name), "at": float(told)}:
                taken = self._footprint.most() if self._footprint else None
                moment = Moment(name[:LONGEST_NAME], time.perf_counter(), taken)
                self._world.ledger.marks(self._pid, moment, told)
            case {"measure": True, "id": int(number)} if self._footprint is None:
                self._footprint = self._world.watch.add(self._pid)
                self._answer(self._new(number), {})
            case {"settle": True, "id": int(number)}:
                self._answer(self._new(number), {})
            case {"join": str(key), "id": int(number), "rank": int(rank), "size": int(size)}:
                timeout = timedelta(seconds=request["timeout"])
                if is_limit(timeout):  # its calls may end without their other sides
                    self._world.pairing.give_up_for_good(key)
                    self._world.collectives.give_up(key)
                self._later(self._new(number), self._join, key, rank, size, timeout)
            case {"cut": True, "id": int(number)}:
                rescue.cut(rescue.tcp_connections())
                self._world.pairing.give_up()
                self._world.collectives.give_up()
                self._answer(self._new(number), {})
            case _:
                raise frames.WireError("no request")

    def _new(self, number: int) -> int:
        """Return the number that the rank gives a request.

        Raises:
            WireError: it has been used already.
        """
        if number <= self._last:
            raise frames.WireError("a number that was used before")
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
        store = PrefixStore(key, self._world.store)
        options = gloo_options(self._world.device)
        options._timeout = timeout
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
        call = describe(operation, Call(operation.name, "", group.ranks), meant) if meant else None
        if meant is None or call is None:  # nothing may be done that cannot be noted
            self._answer(number, {"error": f"{name}: invalid arguments", "exception": "ValueError"})
            return
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
        told = functools.partial(self._end_soon, number, made)
        if operation.message:
            self._post_message(request["group"], call, told)
        else:
            self._post_collective(request["group"], name, call, told)

    def _post_message(self, group: str, call: Call, told: Told) -> None:
        pairing = self._world.pairing
        if call.peer is None:
            pairing.give_up_for_good(group)
            told(False)
        elif call.op == "send":
            pairing.post(Way(group, self._rank, call.peer, call.tag), True, told)
        else:
            pairing.post(Way(group, call.peer, self._rank, call.tag), False, told)

    def _post_collective(self, group: str, name: str, call: Call, told: Told) -> None:
        operation, collectives = METHODS[name], self._world.collectives
        if operation.exchange:  # each two ranks agree on sizes of their own
            collectives.give_up(group)
            told(False)
            return
        waits_for_all = not operation.rooted and (call.nbytes > 0 or name == "barrier")
        what = name, call.part, call.root, call.reduce_op
        collectives.post(group, self._rank, len(call.ranks), what, told if waits_for_all else _ignore)
        if not waits_for_all:  # a rank may be through before others have come to it
            told(False)

    def _end_soon(self, number: int, made: _Made, soon: bool) -> None:
        """Note what is known of a call's end."""
        made.soon = soon
        if made.awaited or made.call.op != "recv":  # the rank asks for a message when it waits for it
            self._finish(number, made)

    def _finish(self, number: int, made: _Made) -> None:
        """Wait for a call and hand over what comes of it: at once, where that takes no time."""
        self._do_with(made, number, self._end, at_once=bool(made.soon))

    def _do_with(self, made: _Made, number: int, work: Callable[..., _Answer], at_once: bool) -> None:
        """Do what answers with the outputs of a call, in another thread where it may take long."""
        if at_once and made.is_small and self._room.poll(0):
            self._try(number, work, number, made)
        else:
            pool = self._world.waits if made.awaited else self._world.ahead
            pool.submit(self._try, number, work, number, made)

    def _wait(self, number: int, by_future: bool) -> None:
        """Hand over what comes of a call, now that the rank waits for it."""
        with self._awaiting:
            made = self._under_way.get(number)
            if made is None or made.awaited:  # it has failed, or is on its way
                return
            made.awaited, made.by_future, is_over = True, by_future, made.over
        if is_over and made.call.op == "send":
            self._note_end(number, made)
        elif is_over:
            self._do_with(made, number, self._hand_over, at_once=True)
        elif made.soon is not None and made.call.op == "recv":
            self._finish(number, made)

    def _end(self, number: int, made: _Made) -> _Answer:
        try:
            made.work.wait()
        except Exception:
            self._under_way.pop(number, None)
            raise
        with self._awaiting:
            made.over = True
            if made.call.op == "send" and not made.awaited:  # its end is when the rank waits for it
                return {"source": -1}, []
            if not made.awaited:
                return {"over": True}, []
        return self._hand_over(number, made)

    def _hand_over(self, number: int, made: _Made) -> _Answer:
        return {"source": self._note_end(number, made)}, [dense(output) for output in made.outputs]

    def _note_end(self, number: int, made: _Made) -> int:
        """Enter the end of a call in the ledger; return the rank that a message came from, in its group."""
        self._under_way.pop(number, None)
        source = made.work._source_rank() if made.call.op == "recv" else -1
        peer = made.call.peer if source < 0 else made.call.ranks[source]
        self._world.ledger.ends(self._pid, made.number, peer, time.perf_counter(), made.by_future)
        return source

    def _monitored_barrier(self, group: _Group, arguments: list[Any]) -> _Answer:
        call = Call("monitored_barrier", "", group.ranks)
        call.start, number = time.perf_counter(), next(self._numbers)
        try:
            group.inner.monitored_barrier(*arguments)  # type: ignore[attr-defined]
        except Exception:
            self._world.ledger.refuses(self._pid, call)
            raise
        self._world.ledger.begins(self._pid, number, call)
        self._world.ledger.ends(self._pid, number, None, time.perf_counter())
        return {"source": -1}, []


def _ignore(soon: bool) -> None:
    """Do nothing: the call has been waited for already."""
