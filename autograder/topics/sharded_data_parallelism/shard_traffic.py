"""Rules for the communication of one step with shards, and the first rule that a rank's calls break.

Pure functions over recorded calls; called by the checks of exercise 05. Bytes are those of the whole arrays
that a collective sums up or puts together, with or without padding.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import named, not_waited_for
from autograder.topics.sharded_data_parallelism import mistakes
from fourranks.naming import counted
from fourranks.trace import Call

REDUCES = ("reduce", "reduce_scatter", "reduce_scatter_single")
GATHERS = ("all_gather", "all_gather_single")
ALL_REDUCES = ("all_reduce",)
COPIES = ("broadcast", *GATHERS)


def broken_rules(calls: Sequence[Call], allowed: Sequence[str], where: str) -> Problem | None:
    """Find a call that is none of the allowed ones, or whose handle was not waited for."""
    for call in calls:
        if call.op not in allowed:
            mistake = mistakes.ALL_REDUCED if call.op in ALL_REDUCES else mistakes.ANOTHER_COLLECTIVE
            names = ", ".join(f"dist.{op}" for op in allowed if not op.endswith("_single"))
            return Problem(mistake, f"{where}: no other collectives than {names}", named(call))
        if problem := not_waited_for([call], where):
            return problem
    return None


def owners(numels: Sequence[int], world_size: int) -> list[int]:
    """Return who owns parameters of so many trained elements, as the exercise's `assign_owner` says."""
    loads, chosen = [0] * world_size, []
    for numel in numels:
        chosen.append(loads.index(min(loads)))
        loads[chosen[-1]] += numel
    return chosen


def world_size(calls: Sequence[Call]) -> int:
    """Count the ranks that take part in these calls."""
    return max((len(call.ranks) for call in calls), default=1)


def whole_bytes(calls: Sequence[Call], ops: Sequence[str]) -> int:
    """Count the bytes of the arrays that these calls move; to a gather, a rank gives one part of N."""
    return sum(_whole(call) for call in calls if call.op in ops)


def _whole(call: Call) -> int:
    return call.nbytes * (len(call.ranks) if call.op in GATHERS else 1)


def too_much(
    calls: Sequence[Call], ops: Sequence[str], limit: int, mistake: Mistake, what: str, where: str
) -> Problem | None:
    """Find more bytes than the limit in these collectives, as a problem with this mistake."""
    sent = whole_bytes(calls, ops)
    if sent <= limit:
        return None
    return Problem(mistake, f"{where}: at most {counted(limit, 'byte')} in {what}", counted(sent, "byte"))


def too_large(calls: Sequence[Call], limit: int, where: str) -> Problem | None:
    """Find an all-gather of more than a layer."""
    largest = max((call for call in calls if call.op in GATHERS), key=_whole, default=None)
    if largest is None or _whole(largest) <= limit:
        return None
    expected = f"{where}: one layer at a time, at most {counted(limit, 'byte')}"
    return Problem(mistakes.ALL_AT_ONCE, expected, f"{counted(_whole(largest), 'byte')} in {named(largest)}")


def too_much_under_way(calls: Sequence[Call], limit: int, mistake: Mistake, where: str) -> Problem | None:
    """Find more bytes than the limit in calls that have been issued, but not waited for, at one moment."""
    most = max((_under_way(calls, call.start) for call in calls), default=0)
    if most <= limit:
        return None
    expected = f"{where}: at most {counted(limit, 'byte')} in collectives that nobody has waited for yet"
    return Problem(mistake, expected, counted(most, "byte"))


def _under_way(calls: Sequence[Call], moment: float) -> int:
    return sum(
        _whole(call) for call in calls if call.start <= moment and (call.end is None or call.end > moment)
    )


def other_dtypes(calls: Sequence[Call], dtype: str, where: str) -> Problem | None:
    """Find a call with data of another dtype than the one that is to be sent."""
    for call in calls:
        if call.nbytes and call.dtype != dtype:
            return Problem(
                mistakes.NOT_IN_COMPUTE_DTYPE, f"{where}: {dtype} is sent", f"{call.dtype} in {named(call)}"
            )
    return None


class ShardTraffic:
    """The memory and the traffic of a module's fully sharded training.

    Attributes:
        sharded: bytes of the sharded parameters that are trained or frozen, padded to equal shards.
        trained: of those of them that are trained.
        small: of the trained parameters that stay whole.
        layer: of the largest module's own sharded parameters.
        held: elements that a rank holds.
    """

    def __init__(
        self, module: nn.Module, min_shard_numel: int, world_size: int, itemsize: int | None
    ) -> None:
        self._world_size, self._itemsize = world_size, itemsize
        self._min_numel = max(1, min_shard_numel)
        parameters = list(module.parameters())
        small = [p for p in parameters if not self.shards(p)]
        sharded = [p for p in parameters if self.shards(p)]
        self.sharded = sum(map(self._padded_bytes, sharded))
        self.trained = sum(self._padded_bytes(p) for p in sharded if p.requires_grad)
        self.small = sum(p.nbytes for p in small if p.requires_grad)
        self.layer = max(
            (
                sum(self._padded_bytes(p) for p in child.parameters(recurse=False) if self.shards(p))
                for child in module.modules()
            ),
            default=0,
        )
        self.held = sum(map(self._shard_numel, sharded)) + sum(p.numel() for p in small)

    def shards(self, parameter: nn.Parameter) -> bool:
        """Tell whether this parameter is to be sharded."""
        return parameter.numel() >= self._min_numel

    def others_bytes(self, parameter: nn.Parameter) -> int:
        """Count the bytes of the shards that a rank does not hold, without padding."""
        missing = max(0, parameter.numel() - self._shard_numel(parameter))
        return missing * (self._itemsize or parameter.element_size())

    def _shard_numel(self, parameter: nn.Parameter) -> int:
        return -(-parameter.numel() // self._world_size)

    def _padded_bytes(self, parameter: nn.Parameter) -> int:
        itemsize = self._itemsize or parameter.element_size()
        return self._shard_numel(parameter) * self._world_size * itemsize
