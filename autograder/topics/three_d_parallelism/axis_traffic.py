"""Limits of a mesh rank's traffic along each axis while it trains, and its traffic beyond them.

Pure functions over recorded calls. Bytes are those that a ring has to send from each rank, whatever the
backend makes of a collective. Messages as small as a loss are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autograder.inside.drivers.three_d_parallelism import AXES
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import named
from autograder.topics.three_d_parallelism import mistakes
from fourranks.naming import counted
from fourranks.trace import Call
from fourranks.trace.bandwidth import busbw_factor, message_size

FREE_BYTES = 64  # of a call that may be a loss
TOO_MUCH: dict[str, Mistake] = {
    "data": mistakes.DATA_BYTES,
    "pipeline": mistakes.PIPELINE_BYTES,
    "tensor": mistakes.TENSOR_BYTES,
}


@dataclass(frozen=True)
class Allowance:
    """Limits of one rank's traffic, axis after axis.

    Attributes:
        rank: which it is.
        members: global ranks of its groups.
        nbytes: that it may send along each.
    """

    rank: int
    members: Sequence[Sequence[int]]
    nbytes: Sequence[float]


def excess(allowance: Allowance, calls: Sequence[Call], where: str) -> Problem | None:
    """Find traffic that belongs to no axis, or more along an axis than it may have."""
    along = [0.0] * len(AXES)
    for call in calls:
        if not call.moves_data or call.nbytes <= FREE_BYTES or call.op == "recv":
            continue
        axis = _axis(allowance, call)
        if axis is None:
            expected = f"{where}: calls within its data, pipeline or tensor group"
            return Problem(mistakes.ACROSS_AXES, expected, f"{named(call)}, {_partners(call)}")
        along[axis] += sent(call, allowance.rank)
    for axis, name in enumerate(AXES):
        if along[axis] > allowance.nbytes[axis] + 0.5:  # bytes come in whole ones
            expected = f"{where}: {counted(round(allowance.nbytes[axis]), 'byte')} along the {name} axis"
            return Problem(TOO_MUCH[name], expected, f"{round(along[axis]):,}")
    return None


def _axis(allowance: Allowance, call: Call) -> int | None:
    """Return the smallest group that this call stays in."""
    ranks = {call.peer} if call.is_point_to_point else set(call.ranks)
    within = [axis for axis, members in enumerate(allowance.members) if ranks <= set(members)]
    return min(within, key=lambda axis: len(allowance.members[axis]), default=None)


def _partners(call: Call) -> str:
    return f"to rank {call.peer}" if call.is_point_to_point else f"on ranks {list(call.ranks)}"


def sent(call: Call, rank: int) -> float:
    """Count the bytes that this rank sends to others, of a collective those that a ring takes."""
    if call.is_point_to_point:
        return call.nbytes if call.op == "send" else 0
    if call.exchange is not None:
        return sum(call.gives(other) for other in call.ranks if other != rank)
    size = message_size(call.op, [call.nbytes] * len(call.ranks))
    return busbw_factor(call.op, len(call.ranks)) * size
