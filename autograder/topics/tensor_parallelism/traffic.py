"""Limits of tensor parallelism's traffic in one forward and one backward, and a rank's calls beyond them.

Pure functions over recorded calls; called by the checks of exercise 06. Bytes are those that a ring has to
send from each rank, so that an all-reduce costs twice what a reduce-scatter does, whatever the backend makes
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import named
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.topics.tensor_parallelism import mistakes
from fourranks.naming import counted
from fourranks.trace import Call
from fourranks.trace.bandwidth import busbw_factor, message_size


@dataclass(frozen=True)
class AllowedCollective:
    """One that is allowed.

    Attributes:
        nbytes: of the whole tensor, S of nccl-tests.
        count: how many of them.
    """

    op: str
    nbytes: int
    count: int = 1

    def __str__(self) -> str:
        return f"{counted(self.count, self.op)} of {counted(self.nbytes, 'byte')}"


@dataclass(frozen=True)
class AllowedTraffic:
    """The communication that is allowed in each part of a step."""

    forward: tuple[AllowedCollective, ...] = ()
    backward: tuple[AllowedCollective, ...] = ()


def least_received(traffic: AllowedTraffic, world_size: int) -> int:
    """Count the bytes that each rank needs from others: generously, half of what collectives bring."""
    if world_size == 1:
        return 0
    brings = {"all_reduce": 1.0, "all_gather": 1 - 1 / world_size, "reduce_scatter": 1 / world_size}
    allowed = (*traffic.forward, *traffic.backward)
    return int(sum(each.count * brings[each.op] * each.nbytes for each in allowed) / 2)


def excess(traffic: AllowedTraffic, outcome: Outcome, world_size: int, where: str) -> Problem | None:
    """Find more than is allowed.

    Args:
        outcome: of a driver that marks when forward `began` and `turned` into backward.
        world_size: number of ranks in the group; alone, nobody communicates.
    """
    calls = [call for call in outcome.calls if call.moves_data]
    if world_size == 1:
        return None
    (step,) = stretches(outcome, "began", 1)
    early = [call for call in calls if call.start < step.at("began")]
    if early:
        expected = f"{where}: no communication in the constructor and in load_full"
        return Problem(mistakes.COLLECTIVES_BEFORE_FORWARD, expected, named(early[0]))
    turned = step.at("turned")
    forward = [call for call in calls if call.start <= turned]
    backward = [call for call in calls if call.start > turned]
    return _excess(_FORWARD, traffic.forward, forward, world_size, where) or _excess(
        _BACKWARD, traffic.backward, backward, world_size, where
    )


@dataclass(frozen=True)
class _Phase:
    """A half of a step, and the mistakes of too many collectives and too many bytes in it."""

    name: str
    too_many: Mistake
    too_much: Mistake


_FORWARD = _Phase("forward", mistakes.COLLECTIVES_IN_FORWARD, mistakes.BYTES_IN_FORWARD)
_BACKWARD = _Phase("backward", mistakes.COLLECTIVES_IN_BACKWARD, mistakes.BYTES_IN_BACKWARD)


def _excess(
    phase: _Phase, allowed: Sequence[AllowedCollective], calls: Sequence[Call], world_size: int, where: str
) -> Problem | None:
    expected = f"{where}, {phase.name}: {' and '.join(map(str, allowed)) or 'no communication'}"
    if len(calls) > sum(collective.count for collective in allowed):
        return Problem(phase.too_many, expected, _listed(calls))
    limit = sum(
        collective.count * _sent(collective.op, collective.nbytes, world_size) for collective in allowed
    )
    sent = sum(
        _sent(call.op, message_size(call.op, [call.nbytes] * world_size), world_size) for call in calls
    )
    if sent > limit + 0.5:  # bytes come in whole ones
        got = f"{_listed(calls)}: {counted(round(sent), 'byte')} on the wire instead of {round(limit):,}"
        return Problem(phase.too_much, expected, got)
    return None


def _sent(op: str, nbytes: int, world_size: int) -> float:
    """Count the bytes that each rank sends when S is `nbytes`."""
    return busbw_factor(op, world_size) * nbytes


def _listed(calls: Sequence[Call]) -> str:
    names = ", ".join(map(named, calls[:3]))
    return f"{counted(len(calls), 'call')}: {names}{', …' if len(calls) > 3 else ''}"
