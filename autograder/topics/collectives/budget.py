"""Limits of an operation's communication: calls that are allowed, and budgets of bytes, messages and rounds.

Pure functions over the calls that ranks recorded (`fourranks.trace.Call`, one list a rank). Each operation's
budget is in `checks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autograder.kit.messages import Message, message_of, mismatched
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import POINT_TO_POINT, Calls
from autograder.topics.collectives import mistakes
from fourranks.naming import counted, name_ranks
from fourranks.trace import Call


@dataclass(frozen=True)
class Budget:
    """The most that an operation may send; None is no limit.

    Attributes:
        name: whose budget it is, as in "a ring".
        bytes_by_rank: bytes that each rank may send.
        messages_by_rank: messages that each rank may send.
        total_bytes: bytes that all ranks together may send.
        rounds: steps in which a rank sends and receives at most one message each.
        ring: ranks in the order of the ring, when each may send to its two neighbours only.
        is_rounded_up: whether the messages are chunks whose size is rounded up.
    """

    name: str
    bytes_by_rank: tuple[int, ...] | None = None
    messages_by_rank: tuple[int, ...] | None = None
    total_bytes: int | None = None
    rounds: int | None = None
    ring: tuple[int, ...] | None = None
    is_rounded_up: bool = False


def violation(budget: Budget, calls: Calls) -> Problem | None:
    """Find the first rule that `calls` break, the most telling ones first."""
    return (
        forbidden(calls)
        or mismatched(calls)
        or _bytes(budget, calls)
        or _messages(budget, calls)
        or _rounds(budget, calls)
        or _ring(budget, calls)
        or unwaited(calls)
    )


def unwaited(calls: Calls) -> Problem | None:
    """Find the first message whose `wait` was never called."""
    for rank, own in enumerate(calls):
        for call in own:
            if call.op in POINT_TO_POINT and call.end is None:
                got = f"none for the i{call.op} in line {call.line} on rank {rank}"
                return Problem(mistakes.UNWAITED, "a wait() for every isend and irecv", got)
    return None


def meet(sender: int, sent: Call, receiver: int | None, received: Call) -> bool:
    """Tell whether a send and a receive are of the same message."""
    return message_of(sender, sent.peer, sent) == message_of(received.peer, receiver, received)


def sends(calls: Sequence[Call]) -> list[Call]:
    """Return the messages that a rank sent."""
    return [call for call in calls if call.op == "send"]


def bytes_sent(calls: Calls) -> list[int]:
    """Count the bytes that each rank handed to sends."""
    return [sum(call.nbytes for call in sends(own)) for own in calls]


def forbidden(calls: Calls) -> Problem | None:
    """Find the calls that are no messages between two ranks."""
    found = [(call.op, call.line) for own in calls for call in own if call.op not in POINT_TO_POINT]
    if not found:
        return None
    text = ", ".join(f"dist.{op} in line {line}" for op, line in list(dict.fromkeys(found))[:3])
    return Problem(mistakes.FORBIDDEN, "only messages between two ranks", text)


def _bytes(budget: Budget, calls: Calls) -> Problem | None:
    sent = bytes_sent(calls)
    if budget.bytes_by_rank is not None:
        over = [rank for rank, limit in enumerate(budget.bytes_by_rank) if sent[rank] > limit]
        if over:
            mistake = mistakes.PADDING if _one_element_too_long(budget, calls, over[0]) else mistakes.BYTES
            return _too_much(mistake, "byte", budget, sent, budget.bytes_by_rank, over)
    if budget.total_bytes is not None and sum(sent) > budget.total_bytes:
        expected = f"{budget.name}: at most {budget.total_bytes:,} bytes in all"
        return Problem(mistakes.BYTES, expected, f"{sum(sent):,} bytes in all")
    return None


def _one_element_too_long(budget: Budget, calls: Calls, rank: int) -> bool:
    """Tell whether each chunk that a rank sent has an element more than it takes."""
    if not budget.is_rounded_up or budget.bytes_by_rank is None or budget.messages_by_rank is None:
        return False
    messages = sends(calls[rank])
    elements = sum(call.nbytes // max(1, math.prod(call.shape)) for call in messages)  # in bytes, of each one
    excess = sum(call.nbytes for call in messages) - budget.bytes_by_rank[rank]
    return len(messages) == budget.messages_by_rank[rank] and excess == elements


def _messages(budget: Budget, calls: Calls) -> Problem | None:
    if budget.messages_by_rank is None:
        return None
    sent = [len(sends(own)) for own in calls]
    over = [rank for rank, limit in enumerate(budget.messages_by_rank) if sent[rank] > limit]
    if not over:
        return None
    return _too_much(mistakes.MESSAGES, "message", budget, sent, budget.messages_by_rank, over)


def _too_much(
    mistake: Mistake, unit: str, budget: Budget, sent: list[int], limits: tuple[int, ...], over: list[int]
) -> Problem:
    worst = max(over, key=lambda rank: sent[rank] - limits[rank])
    where = name_ranks([rank for rank in over if (sent[rank], limits[rank]) == (sent[worst], limits[worst])])
    expected = f"{budget.name}: at most {counted(limits[worst], unit)} from {where} ({sum(limits):,} in all)"
    got = f"{counted(sent[worst], unit)} from {where} ({sum(sent):,} in all)"
    return Problem(mistake, expected, got)


def _rounds(budget: Budget, calls: Calls) -> Problem | None:
    if budget.rounds is None:
        return None
    needed = rounds(calls)
    if needed <= budget.rounds:
        return None
    allowed = counted(budget.rounds, "round")
    return Problem(mistakes.ROUNDS, f"{budget.name}: at most {allowed}", counted(needed, "round"))


def _ring(budget: Budget, calls: Calls) -> Problem | None:
    if budget.ring is None:
        return None
    size = len(budget.ring)
    for position, rank in enumerate(budget.ring):
        neighbours = (budget.ring[position - 1], budget.ring[(position + 1) % size])
        for call in sends(calls[rank]):
            if call.peer not in neighbours:
                return Problem(
                    mistakes.NEIGHBOURS,
                    f"rank {rank} sends to {name_ranks(sorted(set(neighbours)))} only",
                    f"a message to rank {call.peer} in line {call.line}",
                )
    return None


def rounds(calls: Calls) -> int:
    """Count the rounds that the messages take when a rank sends and receives at most one in each.

    A message can leave once all that its sender had received before issuing it is there, and after the
    messages that the sender issued earlier. Both follow from the order of the calls, not from how long they
    took.
    """
    pending = _Messages(calls)
    count = 0
    while pending.left():
        count += 1
        pending.deliver_one_round()
    return count


class _Messages:
    """The messages of a recording, delivered round by round."""

    def __init__(self, calls: Calls) -> None:
        self._queues = [sends(own) for own in calls]
        self._arrived: set[Message] = set()
        self._needs = {
            id(call): self._received_before(call, rank, own)
            for rank, own in enumerate(calls)
            for call in sends(own)
        }

    def left(self) -> bool:
        return any(self._queues)

    def deliver_one_round(self) -> None:
        ready = [
            (rank, queue[0]) for rank, queue in enumerate(self._queues) if queue and self._can_leave(queue[0])
        ]
        # Ranks whose need never arrived (they received from "any source") must not stop the count.
        ready = ready or [(rank, queue[0]) for rank, queue in enumerate(self._queues) if queue][:1]
        receivers: set[int | None] = set()
        for rank, call in ready:
            if call.peer not in receivers:
                receivers.add(call.peer)
                self._queues[rank].pop(0)
                self._arrived.add(message_of(rank, call.peer, call))

    def _can_leave(self, call: Call) -> bool:
        return self._needs[id(call)] <= self._arrived

    @staticmethod
    def _received_before(send: Call, rank: int, own: Sequence[Call]) -> set[Message]:
        return {
            message_of(call.peer, rank, call)
            for call in own
            if call.op == "recv" and call.peer is not None and call.end is not None and call.end <= send.start
        }
