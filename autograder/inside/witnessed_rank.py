"""Becomes a rank whose calls a witness makes, and on rank 0 forks the process that bears witness for all.

A rank runs students' code, and code can change all that its process knows: also its notes of its calls.
So a rank in a sandbox has no connection to another; its calls go through a `witness`.
"""

from __future__ import annotations

import functools
import os
import selectors
import signal
import socket
import threading

import torch

from autograder.inside import forked_zygote, isolation, limits
from autograder.inside.ledger import Ledger
from autograder.inside.meeting import Meeting
from autograder.inside.witness import Witness, World
from autograder.inside.witnessed import Unconnected, WitnessedGroup
from fourranks.hardware import run_as_batch_job
from fourranks.protocol import memory
from fourranks.protocol.channel import Channel
from fourranks.protocol.messages import Settings
from fourranks.rank.main import become_rank

KIND = "FOUR_RANKS_KIND"  # of a rank, in its environment: one of these, or none of them
SHARES_FILES = "its exercise is files"
IS_MEASURED = "its memory is measured"
IS_UNCOUNTED = "its strategy decides how much it sends"
STACK = 1 << 19  # bytes of a thread that waits; at the usual 8 MiB they would take all of a sandbox


def become_witnessed_rank(
    ledger: Ledger, meeting: Meeting, settings: Settings, channel: Channel, board: int, listener: int | None
) -> None:
    """Become a rank whose calls a witness makes. The last four arguments are those of `become_rank`."""
    rank = os.getpid()
    run_as_batch_job()  # as the witness, which is forked here: together they are more than the processors
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if listener is not None and os.fork() == 0:  # on rank 0
        try:
            channel.close()
            os.close(board)
            os.close(listener)
            forked_zygote.end_with(rank)
            _bear_witness(ledger, meeting, settings)
        finally:
            os._exit(0)
    kind = settings.environment[KIND]
    if kind == IS_UNCOUNTED:
        board = memory.create(os.fstat(board).st_size)  # a shared one would carry data that is not counted
    ours, theirs = socket.socketpair()
    with theirs:
        meeting.hand_over(settings, theirs)
    meeting.close()
    ledger.close()
    forked_zygote.keep_only(channel.fileno(), board, ours.fileno())  # nothing that other ranks have, too
    limits.restrict_students()
    isolation.keep_apart(kind == SHARES_FILES)  # before there are threads, which would keep their rights
    Unconnected.prepare()
    isolation.leave_no_traces(kind == SHARES_FILES)
    if kind == IS_MEASURED:
        isolation.keep_memory_in_sight()
    become_rank(settings, channel, board, None, functools.partial(WitnessedGroup, connection=ours))


def _bear_witness(ledger: Ledger, meeting: Meeting, settings: Settings) -> None:
    """Serve the ranks of a world, those that come later too, in one thread; ends with rank 0, its parent.

    The ranks of a sandbox are of one world at a time, so no other witness waits at the meeting.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.stack_size(STACK)
    world = World(ledger)
    with selectors.DefaultSelector() as selector:
        selector.register(meeting, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if isinstance(key.fileobj, socket.socket):
                    if not key.data.serve():
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                elif come := meeting.receive(settings):
                    selector.register(come[2], selectors.EVENT_READ, Witness(world, *come))
