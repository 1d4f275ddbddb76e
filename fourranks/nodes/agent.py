"""Runs on a node, beside its zygote, and does there what the notebook asks for.

The launcher's command starts it, and its standard input and output are the connection. When that ends, so do
the node's ranks and this process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import psutil

from ..protocol import memory
from ..protocol.messages import Settings
from ..zygote import STORE_BACKLOG, Died, FindGpus, Fork, Forked, Zygote
from . import addresses, versions
from .environment import directory_here, path_here
from .messages import ForkThere, Greeting, Listen, Listening, Ping, Pong, SignalRank
from .streams import ByteStream, Multiplexer

TICK = 1.0  # seconds between looks while nothing arrives
DYING_TICK = 0.02  # the same while what an ended rank has printed is on its way
PATIENCE = 600.0  # seconds without a word after which the notebook is taken for gone; a laptop may sleep
LAST_WORDS = 1.0  # seconds for what an ended rank has printed: processes that it left may hold its pipes


@dataclass(eq=False)
class _ForkedRank:
    board: int  # as the notebook tells boards apart
    open_streams: int = 3
    pid: int = 0
    died: Died | None = None
    tell_by: float = 0.0  # when the notebook hears of its end at the latest


class Agent:
    """Forks, watches and ends the ranks of one node."""

    def __init__(self, source: int, target: int) -> None:
        self._zygote = Zygote()
        self._connection = Multiplexer(source, target, self._obey)
        self._connection.watch(self._zygote.channel.fileno(), self._from_zygote)
        self._forking: list[_ForkedRank] = []  # in the order in which the zygote answers
        self._ranks: dict[int, _ForkedRank] = {}
        self._boards: dict[int, int] = {}
        self._listeners: dict[int, socket.socket] = {}  # of stores, by port
        self._heard = time.monotonic()

    def serve(self) -> None:
        """Do what the notebook asks for until it is gone."""
        while not self._connection.at_end and time.monotonic() - self._heard < PATIENCE:
            self._connection.step(DYING_TICK if self._dying() else TICK)
            for rank in self._dying():
                if not rank.open_streams or time.monotonic() > rank.tell_by:
                    self._tell_of_end(rank)
            if self._zygote.channel.at_end:
                print(f"The process that ranks are forked from has ended: {self._zygote.last_words()}")
                break
        self._zygote.stop()

    def _obey(self, message: Any) -> None:
        self._heard = time.monotonic()
        match message:
            case Ping(sent):
                self._connection.post(Pong(sent, time.perf_counter(), self._resident()))
            case ForkThere():
                self._fork(message)
            case Listen(host):
                self._connection.post(self._listen(host))
            case SignalRank(pid, number) if pid in self._ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            case FindGpus():
                self._zygote.channel.send(FindGpus(os.environ.get("CUDA_VISIBLE_DEVICES")))
            case _:
                self._zygote.channel.send(message)

    def _from_zygote(self) -> None:
        for message in self._zygote.channel.receive_available():
            match message:
                case Forked(pid, refusal):
                    rank = self._forking.pop(0)
                    rank.pid = pid
                    if not refusal:
                        self._ranks[pid] = rank
                    self._connection.post(message)
                case Died(pid) if pid in self._ranks:
                    self._ranks[pid].died = message
                    self._ranks[pid].tell_by = time.monotonic() + LAST_WORDS
                case _:
                    self._connection.post(message)

    def _dying(self) -> list[_ForkedRank]:
        return [rank for rank in self._ranks.values() if rank.died is not None]

    def _tell_of_end(self, rank: _ForkedRank) -> None:
        """Tell the notebook, which has by now what the rank printed last."""
        self._connection.post(rank.died)
        del self._ranks[rank.pid]
        if not any(other.board == rank.board for other in [*self._ranks.values(), *self._forking]):
            os.close(self._boards.pop(rank.board))

    def _resident(self) -> dict[int, int]:
        resident = {}
        for pid in self._ranks:
            with contextlib.suppress(psutil.Error):
                resident[pid] = psutil.Process(pid).memory_info().rss
        return resident

    def _listen(self, host: str) -> Listening:
        try:
            listener = socket.create_server((host, 0), backlog=STORE_BACKLOG)
        except OSError as error:
            return Listening(0, str(error))
        port = int(listener.getsockname()[1])
        self._listeners[port] = listener
        return Listening(port)

    def _fork(self, order: ForkThere) -> None:
        ours, theirs = socket.socketpair()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        if order.board not in self._boards:
            self._boards[order.board] = memory.create(order.board_size)
        rank = _ForkedRank(order.board)

        def over() -> None:
            rank.open_streams -= 1

        control, stdout, stderr = order.streams
        self._connection.add(ByteStream(control, ours.fileno(), ours, when_over=over))
        self._connection.add(ByteStream(stdout, out, when_over=over))
        self._connection.add(ByteStream(stderr, err, when_over=over))
        self._forking.append(rank)
        settings = _as_here(order.settings)
        listener = self._listeners.pop(settings.store_port, None) if settings.rank == 0 else None
        handed_on = [theirs.fileno(), out_end, err_end, self._boards[order.board]]
        handed_on += [listener.fileno()] if listener is not None else []
        try:
            self._zygote.channel.send_with_descriptors(Fork(settings), handed_on)
        finally:
            theirs.close()
            os.close(out_end)
            os.close(err_end)
            if listener is not None:
                listener.close()


def _as_here(settings: Settings) -> Settings:
    """Put the notebook's working directory, path and variables into terms of this machine."""
    return replace(
        settings,
        directory=directory_here(settings.directory),
        path=path_here(sys.path, settings.path),
        environment={**os.environ, **settings.environment},
    )


def main(node: str) -> None:
    """Greet the notebook and serve it. Everything else that is printed here goes to stderr."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray blocks SIGINT, and ranks would inherit that
    source, target = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    greeting = Greeting(platform.node(), versions.own(), addresses.own_interfaces(node))
    os.write(target, greeting.line().encode())
    Agent(source, target).serve()


if __name__ == "__main__":
    from fourranks.nodes import agent

    agent.main(sys.argv[1])
