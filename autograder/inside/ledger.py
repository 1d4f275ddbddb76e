"""The calls that witnesses have made for ranks, and whether the ranks' own records tell the same.

A file without a name in the sandbox's memory. Witnesses append to it, `broker` reads it, and no process
that runs students' code has it open.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from autograder.inside.moments import Moment
from fourranks.protocol import memory
from fourranks.trace import Call

MOST_BYTES = 64 << 20  # that witnesses write until somebody reads: more calls than any check counts
# The description of a call. A rank's own record has, besides, the line that made it, which it alone knows.
_IDENTITY = ("ranks", "shape", "dtype", "nbytes", "part", "exchange", "root", "reduce_op", "tag")


class Contradiction(Exception):
    """Ranks tell of other calls than they have made."""


class Ledger:
    """The file. A line is a call of a process, its end, its refusal, or a moment that a driver marks."""

    def __init__(self) -> None:
        self._descriptor = memory.create()
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, os.O_APPEND)  # so that each line stays whole
        self._read_to = 0

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)

    # --- for witnesses -----------------------------------------------------------------------------------

    def begins(self, pid: int, number: int, call: Call) -> None:
        """Note that a process has made a call, at `call.start`; `number` is the witness's own."""
        self._append(["call", pid, number, call.start, call.peer, _identity(call)])

    def ends(self, pid: int, number: int, peer: int | None, when: float, by_future: bool = False) -> None:
        """Note that a process has been handed what came of a call, and from which peer a message came.

        One that has taken a future of it is handed it at once, and may wait for it only later.
        """
        self._append(["end", pid, number, when, peer, by_future])

    def refuses(self, pid: int, call: Call) -> None:
        """Note that the backend has refused a call: it was not made, and may still be on record."""
        self._append(["refused", pid, 0, call.start, call.peer, _identity(call)])

    def marks(self, pid: int, moment: Moment, told: float | None = None) -> None:
        """Note that a driver has come to a moment, and when by its rank's clock."""
        self._append(["moment", pid, told, *moment])

    def _append(self, row: list[Any]) -> None:
        if os.fstat(self._descriptor).st_size > MOST_BYTES:
            raise MemoryError("more calls than can be noted")
        os.write(self._descriptor, json.dumps(row).encode() + b"\n")

    # --- for those who check -----------------------------------------------------------------------------

    def forget(self, pids: Sequence[int]) -> list[str]:
        """Begin a new page; returns what these processes have called since the one before was read."""
        late = self._rows(pids, self._read_to).values()
        os.ftruncate(self._descriptor, 0)
        self._read_to = 0
        return [json.loads(call.identity)[0] for rows in late for call in _noted(rows).calls]

    def read(self, pids: Sequence[int]) -> Page:
        """Read what was noted of these processes, one a rank."""
        rows = self._rows(pids, 0)
        return Page([_noted(rows[pid]) for pid in pids])

    def _rows(self, pids: Sequence[int], start: int) -> dict[int, list[list[Any]]]:
        rows: dict[int, list[list[Any]]] = {pid: [] for pid in pids}
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(start)
            for line in file:
                kind, pid, *rest = json.loads(line)
                if pid in rows:
                    rows[pid].append([kind, *rest])
            self._read_to = file.tell()
        return rows


@dataclasses.dataclass(slots=True)
class _NotedCall:
    """A call that was made."""

    identity: str
    peer: int | None
    start: float
    end: float | None = None
    by_future: bool = False


@dataclasses.dataclass(frozen=True)
class _Noted:
    """A witness's notes of one rank."""

    calls: Sequence[_NotedCall]
    refused: Counter[tuple[str, int | None]]
    moments: Sequence[Moment]
    marked: Sequence[tuple[float, float]]  # when the rank says it came to a moment, and when it was noted


class Page:
    """Witnesses' notes of the ranks of one world in one run."""

    def __init__(self, noted: Sequence[_Noted]) -> None:
        self._noted = noted

    def confirmed(self, told: Sequence[Sequence[Call]]) -> list[list[Call]]:
        """Return the calls that ranks tell of, in the order in which they were made.

        Args:
            told: of each rank.

        Raises:
            Contradiction: they are not the calls that were made.
        """
        pairs = zip(told, self._noted, strict=True)
        return [_confirmed(rank, own, noted) for rank, (own, noted) in enumerate(pairs)]

    @property
    def moments(self) -> list[Sequence[Moment]]:
        """The moments that each rank's driver has come to."""
        return [noted.moments for noted in self._noted]


def _noted(rows: Sequence[list[Any]]) -> _Noted:
    calls: dict[int, _NotedCall] = {}
    refused: Counter[tuple[str, int | None]] = Counter()
    moments: list[Moment] = []
    marked: list[tuple[float, float]] = []
    for row in rows:
        match row:
            case ["call", number, when, peer, identity]:
                calls[number] = _NotedCall(json.dumps(identity), peer, when)
            case ["end", number, when, peer, by_future] if number in calls:  # else it began before this page
                calls[number].peer, calls[number].end, calls[number].by_future = peer, when, by_future
            case ["refused", _, _, peer, identity]:
                refused[json.dumps(identity), peer] += 1
            case ["moment", told, *moment]:
                moments.append(Moment(*moment))
                marked += [(told, moments[-1].at)] if told is not None else []
    return _Noted(list(calls.values()), refused, moments, marked)


def _identity(call: Call) -> list[Any]:
    """Return what a call is, its op without an ending that differs between versions of torch for objects."""
    return [call.op.removesuffix("_single")] + [getattr(call, name) for name in _IDENTITY]


def _confirmed(rank: int, told: Iterable[Call], noted: _Noted) -> list[Call]:
    """Match calls by what they are, not by their place: two threads may have made them at the same time."""
    unconfirmed: dict[tuple[str, int | None], deque[Call]] = defaultdict(deque)
    for call in told:
        unconfirmed[json.dumps(_identity(call)), call.peer].append(call)
    confirmed = []
    for made in noted.calls:
        alike = unconfirmed[made.identity, made.peer]
        if not alike:
            op = json.loads(made.identity)[0]
            raise Contradiction(f"rank {rank} has called {op}, which its record conceals")
        confirmed.append(_timed(alike.popleft(), made, noted.marked))
    for identity, alike in unconfirmed.items():
        if len(alike) > noted.refused[identity]:
            raise Contradiction(f"rank {rank}'s record tells of {alike[0].op}, which it has not called")
    return confirmed


def _timed(call: Call, made: _NotedCall, marked: Iterable[tuple[float, float]]) -> Call:
    """Set a call's times by the witness's clock. Whether a rank has waited for it, the rank tells.

    It also tells when, where it has taken a future: the witness has handed the result over before that. What
    a rank came to before that comes before it, though a busy witness may note it later. What a message brings
    may be used as soon as it is handed over.
    """
    waited = call.end
    call.start, call.completed, call.waited = made.start, None, 0.0
    call.end = made.end if call.op == "recv" or waited is not None else None
    if made.by_future and call.op != "recv" and call.end is not None and waited is not None:
        call.end = max(call.end, waited, *(at for told, at in marked if told <= waited))
    return call
