"""Sends and receives of all ranks: which of them are of one message, and whether they fit each other."""

from __future__ import annotations

from autograder.kit.mistakes import MISMATCH
from autograder.kit.problem import Problem
from autograder.kit.received import Calls
from fourranks.naming import counted
from fourranks.trace import Call

Message = tuple[int | None, int | None, str, int, int]


def message_of(src: int | None, dst: int | None, call: Call) -> Message:
    """Return what a send and its receive have in common: from, to, group, tag, n-th of these."""
    return src, dst, call.group, call.tag, call.seq


def mismatched(calls: Calls) -> Problem | None:
    """Find the first message that was received into a buffer of another size or dtype."""
    buffers: dict[Message, tuple[int | None, Call]] = {
        message_of(call.peer, rank, call): (rank, call)
        for rank, own in enumerate(calls)
        for call in own
        if call.op == "recv"
    }
    for rank, own in enumerate(calls):
        for sent in own:
            receiver, buffer = buffers.get(message_of(rank, sent.peer, sent), (None, sent))
            if sent.op == "send" and (sent.nbytes, sent.dtype) != (buffer.nbytes, buffer.dtype):
                expected = f"room for the {_described(sent)} that rank {rank} sends in line {sent.line}"
                got = f"{_described(buffer)} on rank {receiver} in line {buffer.line}"
                return Problem(MISMATCH, expected, got)
    return None


def _described(call: Call) -> str:
    return f"{counted(call.nbytes, 'byte')} of {call.dtype}"
