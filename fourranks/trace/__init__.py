"""The ranks' communication in some cells: the calls that each has recorded, put together in a `Trace`.

`operations` and `spans` compute on it, `chrome` writes it to a file, checks read it, and `views` draw it
(`views.drawable_trace`). Nothing here talks to a process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ..naming import counted
from ..protocol.calls import Call, Record, Tracing
from .operations import Operation, operations
from .spans import RankSpans, rank_spans

__all__ = ["Call", "Trace"]


@dataclass(repr=False)
class Trace:
    """The ranks' activity in the cells and calls between entering and leaving `group.trace()`.

    Attributes:
        world_size: number of ranks.
        tracing: the notes that the ranks are asked to take.
        cells: for each traced cell the record of each rank that ran it to an end.
        formed: moments at which the process groups were formed again in between.
        clock_uncertainty: seconds by which the times of two ranks may be wrong against each other; 0 on one
            machine, where all have one clock.
    """

    world_size: int
    tracing: Tracing = Tracing()
    cells: list[dict[int, Record]] = field(default_factory=list)
    formed: list[float] = field(default_factory=list)
    clock_uncertainty: float = 0.0

    @property
    def calls(self) -> list[list[Call]]:
        """For each rank its calls, in the order they were issued."""
        return [
            [call for cell in self.cells if rank in cell for call in cell[rank].calls]
            for rank in range(self.world_size)
        ]

    @property
    def begun(self) -> float:
        """When the first rank began with the first cell."""
        return min((record.start for cell in self.cells for record in cell.values()), default=0.0)

    @property
    def operations(self) -> list[Operation]:
        """The calls of all ranks put together to collectives and messages."""
        return operations(self.calls, self.formed)

    def bytes_sent(self, rank: int) -> int:
        """Return the bytes that this rank handed to point-to-point sends."""
        return sum(call.nbytes for call in self.calls[rank] if call.op == "send")

    def traffic_matrix(self) -> list[list[int]]:
        """Return the bytes that each rank (row) sent to each rank (column), point to point."""
        matrix = [[0] * self.world_size for _ in range(self.world_size)]
        for rank, row in enumerate(self.calls):
            for call in row:
                if call.op == "send" and call.peer is not None:
                    matrix[rank][call.peer] += call.nbytes
        return matrix

    def spans(self) -> list[RankSpans]:
        """Return how each rank spent its time."""
        return rank_spans(self.world_size, self.cells, self.operations)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one plain dict for each call, for instance for `pandas.DataFrame(trace.to_records())`.

        The fields are those of `Call`, with the rank, the number of the traced cell, the line in words
        (`where`), and times in seconds since the first rank began.
        """
        return [
            self._plain(call, rank, number, record)
            for number, cell in enumerate(self.cells)
            for rank, record in sorted(cell.items())
            for call in record.calls
        ]

    def _plain(self, call: Call, rank: int, number: int, record: Record) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "rank": rank,
            "cell": number,
            "where": str(record.places.get((call.file, call.line), "")),
        }
        plain |= {
            name.name: getattr(call, name.name) for name in fields(call) if name.name not in ("part", "look")
        }
        for moment in ("start", "end", "completed"):
            if plain[moment] is not None:
                plain[moment] -= self.begun
        return plain

    def __repr__(self) -> str:
        calls, cells = sum(map(len, self.calls)), len(self.cells)
        return f"<Trace: {calls} calls on {self.world_size} ranks in {counted(cells, 'cell')}>"
