"""One rank of a world of any size, without the others: its memory and communication at a cluster's scale.

    seen = fourranks.run_virtual(train_step, world_size=1024, rank=17)
    print(seen)         # its collectives and messages
    seen.value          # what train_step has returned, such as the bytes of its shards

With tensors of `torch._subclasses.FakeTensorMode` a model takes no memory, however large it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import checked
from .group import start
from .trace import Call


@dataclass(frozen=True)
class VirtualRank:
    """The course of a function on a virtual rank; `str` is a table of its calls.

    Attributes:
        value: its result.
        calls: its communication, in order.
    """

    value: Any
    calls: Sequence[Call]

    def traffic(self) -> Counter[tuple[str, int, int]]:
        """Count the calls by operation, number of ranks, and bytes that this rank puts in."""
        return Counter((call.op, len(call.ranks), call.nbytes) for call in self.calls)

    def __str__(self) -> str:
        lines = [f"{'operation':24}{'ranks':>6}{'bytes':>16}{'calls':>8}"]
        for (op, ranks, nbytes), count in self.traffic().items():
            lines.append(f"{op:24}{ranks:6}{nbytes:16,}{count:8}")
        return "\n".join(lines)


def run_virtual(
    function: Callable[..., Any],
    *args: Any,
    world_size: int,
    rank: int = 0,
    timeout: float | None = None,
    **kwargs: Any,
) -> VirtualRank:
    """Call a function on one rank of a world whose other ranks are not there.

    The rank is a process on the CPU. Its collectives, sends and receives return at once, and data
    from other ranks never arrives: look at shapes, memory and calls, not at values.

    Args:
        function: as for `fourranks.run`.
        world_size: ranks that it finds.
        rank: which of them it is.
        timeout: seconds that it may take.

    Raises:
        FourRanksError: `rank` or `world_size` is not a whole number, or there is no such rank.
        RankError: the function has raised.
    """
    rank, world_size = checked.virtual_rank(rank, world_size)
    with start(1, "gloo", timeout, nodes=()) as group:
        group.virtualize(rank, world_size)
        with group.trace() as trace:
            (value,) = group.run(function, *args, **kwargs)
    return VirtualRank(value, trace.calls[0])
