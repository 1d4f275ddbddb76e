"""A process beside each rank that makes the rank's calls, and notes them where the rank cannot.

A rank runs students' code, and code can change whatever its process knows: also what it has noted of its
calls. So a rank in a sandbox has no socket. Its process groups (`witnessed`) hand each call to this process,
in which no student's code runs; this one holds the connections of Gloo, makes the call and enters it in the
`ledger`. What a rank sends here is read by `wire`; nonsense ends both.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist

from autograder import wire
from autograder.sandbox import isolation
from autograder.sandbox.arguments import from_plain, tensors
from autograder.sandbox.ledger import Ledger
from autograder.sandbox.witnessed import Unconnected, WitnessedGroup
from fourranks import forked_zygote
from fourranks.messages import LOOPBACK, Channel, Settings
from fourranks.rank import rescue
from fourranks.rank.arguments import OPERATIONS, call_on, describe
from fourranks.rank.main import become_rank
from fourranks.trace import Call

SHARES_FILES = "FOUR_RANKS_SHARES_FILES"  # in a rank's environment: "True" where its exercise is files
MOST_WAITS = 1000  # that a rank may have under way at a time


def become_witnessed_rank(
    ledger: Ledger, settings: Settings, channel: Channel, board: int, listener: int | None
) -> None:
    """Become a rank with a witness beside it. The other arguments are those of `become_rank`."""
    ours, theirs = socket.socketpair()
    rank = os.getpid()
    if os.fork() == 0:
        try:
            ours.close()
            channel.close()
            os.close(board)
            forked_zygote.end_with(rank)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            torch.set_num_threads(1)
            Witness(rank, settings, listener, theirs, ledger).serve()
        finally:
            os._exit(0)
    theirs.close()
    ledger.close()
    if listener is not None:
        os.close(listener)
    Unconnected.prepare()
    isolation.keep_apart(shares_files=settings.environment[SHARES_FILES] == "True")
    isolation.make_no_sockets()  # before there are threads, which would keep their rights
    become_rank(settings, channel, board, None, functools.partial(WitnessedGroup, connection=ours))


@dataclass
class _Group:
    """A process group, and its global ranks in group order, as their witnesses know them."""

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
        pid: of the rank's process, by which the ledger knows it.
        settings: the rank and its world.
        listener: for rank 0, the descriptor of the socket that the rendezvous store listens on.
        connection: to the rank.
        ledger: where calls are noted.
    """

    def __init__(
        self, pid: int, settings: Settings, listener: int | None, connection: socket.socket, ledger: Ledger
    ) -> None:
        self._pid, self._settings, self._connection, self._ledger = pid, settings, connection, ledger
        self._sending = Lock()
        self._waits = ThreadPoolExecutor(MOST_WAITS)
        self._groups: dict[str, _Group] = {}
        self._messages: dict[int, _Made] = {}  # nobody waits for these yet
        if listener is not None:
            self._server = self._store(is_master=True, wait_for_workers=False, master_listen_fd=listener)

    def serve(self) -> None:
        """Do what the rank asks for until it is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._do(wire.receive(self._connection))

    def _do(self, request: Any) -> None:
        match request:
            case {"join": str(key), "rank": int(rank), "size": int(size), "timeout": float(timeout)}:
                self._later(request["id"], self._join, key, rank, size, timedelta(seconds=timeout))
            case {"call": str(name), "group": str(key), "arguments": list(), "keywords": dict()}:
                self._call(request, name, self._groups[key])
            case {"wait": int(number), "timeout": list(timeout)}:
                self._later(number, self._end, number, self._messages.pop(number), from_plain(timeout))
            case {"cut": True}:
                rescue.cut(rescue.tcp_connections())
            case _:
                raise wire.WireError("no request")

    def _later(self, number: int, work: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        """Do what may take long while the rank asks for more."""
        self._waits.submit(self._answer, number, work, *arguments)

    def _answer(self, number: int, work: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        try:
            answer = work(*arguments)
        except Exception as error:
            answer = {"error": str(error), "exception": type(error).__name__}
        with self._sending, contextlib.suppress(OSError):  # the rank is gone
            wire.send(self._connection, {"id": number} | answer)

    # --- groups ------------------------------------------------------------------------------------------

    def _store(self, **options: Any) -> dist.TCPStore:
        return dist.TCPStore(LOOPBACK, self._settings.store_port, **options)

    def _join(self, key: str, rank: int, size: int, timeout: timedelta) -> dict[str, Any]:
        """Meet the witnesses of the group's other ranks, which say who they are."""
        store = dist.PrefixStore(key, self._store(is_master=False))
        backend = dist.ProcessGroupGloo(store, rank, size, timeout)
        inner = dist.ProcessGroup(store, rank, size)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
        inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        ranks = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
        inner.allgather([ranks], [torch.tensor([self._settings.rank])]).wait()
        self._groups[key] = _Group(inner, tuple(map(int, ranks)))
        return {}

    # --- calls -------------------------------------------------------------------------------------------

    def _call(self, request: dict[str, Any], name: str, group: _Group) -> None:
        number, arguments = request["id"], from_plain(request["arguments"])
        keywords = {keyword: from_plain(value) for keyword, value in request["keywords"].items()}
        if name == "monitored_barrier":
            self._note(number, call_on(name, "", group.ranks))
            self._later(number, self._monitored_barrier, group, arguments)
            return
        operation = OPERATIONS[name]
        call = describe(operation, "", group.ranks, tuple(arguments))
        self._note(number, call)
        try:
            work = getattr(group.inner, name)(*arguments, **keywords)
        except Exception as error:
            self._answer(number, _raise, error)
            return
        if request["acknowledge"]:
            self._answer(number, lambda: {"issued": True})
        outputs = [] if call.op == "send" else list(tensors(arguments[:1]))
        made = _Made(call, work, outputs)
        if operation.message:
            self._messages[number] = made  # Gloo completes it where it is waited for
        else:
            self._later(number, self._end, number, made, [])

    def _note(self, number: int, call: Call) -> None:
        call.start = time.perf_counter()
        self._ledger.begins(self._pid, number, call)

    def _end(self, number: int, made: _Made, timeout: list[timedelta]) -> dict[str, Any]:
        made.work.wait(*timeout)
        source = made.work._source_rank() if made.call.op == "recv" and made.call.peer is None else -1
        if made.call.is_point_to_point:
            peer = made.call.peer if source < 0 else made.call.ranks[source]
            self._ledger.ends(self._pid, number, peer, time.perf_counter())
        return {"tensors": made.outputs, "source": source}

    def _monitored_barrier(self, group: _Group, arguments: list[Any]) -> dict[str, Any]:
        group.inner.monitored_barrier(*arguments)
        return {"tensors": [], "source": -1}


def _raise(error: Exception) -> dict[str, Any]:
    raise error
