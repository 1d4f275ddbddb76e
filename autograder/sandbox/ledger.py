"""What witnesses have noted of the calls that ranks had them make, and whether ranks tell the same.

A file without a name in the sandbox's memory. Witnesses append to it, `interpreter` reads it, and no process
that runs students' code has it open.
"""

from __future__ import annotations

import bisect
import dataclasses
import fcntl
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from fourranks import memory
from fourranks.trace import Call

MOST_BYTES = 64 << 20  # that witnesses write until somebody reads: more calls than any check counts
# What a call is. Beyond that, a rank's own record has the line of code that made it, and when, which nobody
# else can know.
_IDENTITY = ("op", "ranks", "shape", "dtype", "nbytes", "part", "exchange", "root", "reduce_op", "tag")


class Contradiction(Exception):
    """Ranks tell of other calls than they have made."""


class Ledger:
    """The file. A line is a call, by which rank, or the end of a message."""

    def __init__(self) -> None:
        self._descriptor = memory.create()
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, os.O_APPEND)  # so that each line stays whole

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)

    # --- for witnesses -----------------------------------------------------------------------------------

    def begins(self, pid: int, number: int, call: Call) -> None:
        """A rank makes this call, its n-th."""
        if os.fstat(self._descriptor).st_size > MOST_BYTES:
            raise MemoryError("more calls than can be noted")
        self._append([pid, number, call.start, call.peer, _identity(call)])

    def ends(self, pid: int, number: int, peer: int, when: float) -> None:
        """What came from this peer has been handed to the rank, which waited for it."""
        self._append([pid, number, when, peer])

    def _append(self, row: list[Any]) -> None:
        os.write(self._descriptor, json.dumps(row).encode() + b"\n")

    # --- for those who check -----------------------------------------------------------------------------

    def forget(self) -> None:
        """Begin a new page."""
        os.ftruncate(self._descriptor, 0)

    def confirmed(self, told: Sequence[Sequence[Call]], pids: Sequence[int]) -> list[list[Call]]:
        """The calls that ranks tell of, in the order in which they were made, and of what had been received.

        Args:
            told: of each rank.
            pids: of each rank's process.

        Raises:
            Contradiction: they are not the calls that were made.
        """
        noted = self._read()
        return [
            _confirmed(rank, own, noted[pid]) for rank, (own, pid) in enumerate(zip(told, pids, strict=True))
        ]

    def _read(self) -> dict[int, list[_Noted]]:
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            rows = [json.loads(line) for line in file]
        calls: dict[int, dict[int, _Noted]] = defaultdict(dict)
        for pid, number, when, peer, *identity in rows:
            if identity:
                calls[pid][number] = _Noted(json.dumps(identity[0]), peer, when)
            elif number in calls[pid]:  # else it began before this page
                calls[pid][number].peer, calls[pid][number].end = peer, when
        return defaultdict(list, {pid: list(own.values()) for pid, own in calls.items()})


@dataclasses.dataclass(slots=True)
class _Noted:
    """A call that was made."""

    identity: str
    peer: int | None
    start: float
    end: float | None = None


def _identity(call: Call) -> list[Any]:
    return [getattr(call, name) for name in _IDENTITY]


def _confirmed(rank: int, told: Iterable[Call], made: Sequence[_Noted]) -> list[Call]:
    """By what they are, not by their place: two threads may have made calls at the same time."""
    unconfirmed: dict[tuple[str, int | None], deque[Call]] = defaultdict(deque)
    for call in told:
        unconfirmed[json.dumps(_identity(call)), call.peer].append(call)
    confirmed = []
    for noted in made:
        alike = unconfirmed[noted.identity, noted.peer]
        if not alike:
            op = json.loads(noted.identity)[0]
            raise Contradiction(f"rank {rank} has called {op}, which its record conceals")
        confirmed.append(alike.popleft())
    for alike in unconfirmed.values():
        for call in alike:
            raise Contradiction(f"rank {rank}'s record tells of {call.op}, which it has not called")
    _order(confirmed, made)
    return confirmed


def _order(calls: Iterable[Call], made: Sequence[_Noted]) -> None:
    """When messages came is the witness' to say, and no call was made before what had come until then."""
    arrivals = sorted(noted.end for noted in made if noted.end is not None)
    for call, noted in zip(calls, made, strict=True):
        earlier = bisect.bisect_right(arrivals, noted.start)
        if earlier:
            call.start = max(call.start, arrivals[earlier - 1])
        if call.op == "recv":
            call.end = noted.end
