"""Proves that ranks wait for something that cannot come: pure logic over what the ranks report.

A rank is *blocked* while its main thread stands still in one call. The call completes only after certain
other ranks have issued their side of it. Ranks that are blocked or have ended issue nothing, so a set of
blocked ranks in which each misses a rank of the set, or one that has ended, will wait forever. Reports are
taken at slightly different times; a rank counts as blocked only if two reports in a row show it in the same
call.

NCCL only launches a call, and the rank goes on. Its cell is not over before the call is, so a launched call
that misses a rank that has ended is a proof, too. `diagnosis` puts a proof into words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .rank.progress import Progress
from .trace import Call

STANDSTILL_ROUNDS = 5  # unchanged reports after which what may have been on its way does not come any more

_NOTHING = Progress()


@dataclass(frozen=True)
class RankView:
    """What is known about one rank: how far it is, and how its cell ended if it has."""

    progress: Progress
    ended: str | None = None  # "finished the cell", "raised ValueError", "died"; None while it runs


@dataclass(frozen=True)
class Deadlock:
    """A proof: each of these ranks waits for ranks that will never come."""

    blocked: dict[int, Call]
    missing: dict[int, tuple[int, ...]]  # whom each blocked rank waits for
    views: dict[int, RankView]  # of all ranks, as they were
    conflicts: dict[int, Call] = field(default_factory=dict)  # other calls at the same place of a group

    @property
    def settled(self) -> bool:
        """Whether every rank stands still or has ended, so that nothing more will come to light."""
        return all(view.ended or view.progress.blocked for view in self.views.values())

    @property
    def ended(self) -> dict[int, str]:
        """How those of the missing ranks that have ended did so."""
        missing = {rank for ranks in self.missing.values() for rank in ranks}
        return {rank: how for rank in sorted(missing) if (how := self.views[rank].ended)}


class Watch:
    """Compares report after report of one cell.

    Attributes:
        suspicious: whether some rank has not moved since the report before.
    """

    def __init__(self) -> None:
        self.suspicious = False
        self._before: dict[int, int] = {}
        self._unchanged = 0

    def observe(self, views: dict[int, RankView]) -> Deadlock | None:
        """Take one report of every rank; returns a proof as soon as there is one."""
        running = {rank: view.progress for rank, view in views.items() if view.ended is None}
        waits = {rank: progress.blocked or progress.launched for rank, progress in running.items()}
        now = {rank: call.index for rank, call in waits.items() if call is not None}
        steady = {rank for rank in now if self._before.get(rank) == now[rank]}
        self.suspicious = bool(steady)
        self._unchanged = self._unchanged + 1 if now == self._before else 0
        self._before = now
        strict = self._unchanged < STANDSTILL_ROUNDS
        blocked = {rank: waits[rank] for rank in steady if running[rank].blocked is not None}
        launched = {rank: waits[rank] for rank in steady - set(blocked)}
        return _disagreement(blocked, views) or _deadlock(blocked, launched, views, strict)


def in_step(progresses: dict[int, Progress]) -> bool:
    """Whether all ranks have issued the same collectives in every group and no message is unmatched."""
    for progress in progresses.values():
        for key, count in progress.collectives.items():
            if any(progresses[member].collectives.get(key, 0) != count for member in key[1]):
                return False
    return all(_sent_to(rank, progresses) == sum(progresses[rank].recvs.values()) for rank in progresses)


def _sent_to(rank: int, progresses: dict[int, Progress]) -> int:
    return sum(
        count
        for progress in progresses.values()
        for (_, peer, _), count in progress.sends.items()
        if peer == rank
    )


def _disagreement(steady: dict[int, Call], views: dict[int, RankView]) -> Deadlock | None:
    """Two ranks with different calls at the same place of the same group."""
    for rank, call in steady.items():
        if call.is_point_to_point:
            conflicts = _misfit(rank, call, views)
        else:
            conflicts = {
                other: their
                for other in call.ranks
                if other != rank
                if (their := _call_at(views[other].progress, call))
                and not (call.agrees_with(their) and call.fits(rank, their, other))
            }
        if conflicts:
            same_place = {r: c for r, c in steady.items() if c.place_in_group == call.place_in_group}
            blocked = {rank: call} if call.is_point_to_point else same_place
            return Deadlock(blocked, dict.fromkeys(blocked, ()), views, conflicts)
    return None


def _call_at(progress: Progress, call: Call) -> Call | None:
    """The collective that another rank issued at the same place of the same group, if it is still known."""
    for recent in progress.recent:
        if not recent.is_point_to_point and recent.place_in_group == call.place_in_group:
            return recent
    return None


def _misfit(rank: int, call: Call, views: dict[int, RankView]) -> dict[int, Call]:
    """The other side of a message if the receiver's tensor is too small for it."""
    for other in set(call.ranks) - {rank} if call.peer is None else [call.peer]:
        for their in views[other].progress.recent:
            if {call.op, their.op} == {"send", "recv"} and their.peer in (rank, None):
                ends = ((rank, call), (other, their))
                (sender, sent), (receiver, received) = ends if call.op == "send" else ends[::-1]
                if sent.nbytes > received.nbytes and _meet(sender, sent, received, views[receiver].progress):
                    return {other: their}
    return {}


def _meet(sender: int, sent: Call, received: Call, receiver: Progress) -> bool:
    """Whether this receive is for this message.

    One from any source is for the next message of each rank, unless several are under way.
    """
    seq = received.seq
    if received.peer is None:
        if receiver.recvs.get((received.group, None, received.tag), 0) > 1:
            return False
        seq = receiver.recvs.get((received.group, sender, received.tag), 0)
    return (sent.group, sent.tag, sent.seq) == (received.group, received.tag, seq)


def _deadlock(
    blocked: dict[int, Call], launched: dict[int, Call], views: dict[int, RankView], strict: bool
) -> Deadlock | None:
    """The largest set of ranks that only wait for each other and for ranks that have ended."""
    ended = {rank for rank, view in views.items() if view.ended is not None}
    calls = blocked | launched
    progresses = {rank: view.progress for rank, view in views.items()}
    awaited = {rank: missing(rank, call, progresses, strict) for rank, call in calls.items()}
    stuck = set(blocked) | {rank for rank in launched if awaited[rank] & ended}
    while loose := {rank for rank in stuck if not _hopeless(calls[rank], awaited[rank], stuck | ended)}:
        stuck -= loose
    if not stuck:
        return None
    waits = {rank: tuple(sorted(awaited[rank])) for rank in sorted(stuck)}
    return Deadlock({rank: calls[rank] for rank in waits}, waits, views)


def _hopeless(call: Call, missing: set[int], idle: set[int]) -> bool:
    if call.op == "recv" and call.peer is None:  # any source: hopeless only if nobody is left to send
        return bool(missing) and missing <= idle
    return bool(missing & idle)


def missing(rank: int, call: Call, progresses: Mapping[int, Progress], strict: bool = True) -> set[int]:
    """Ranks that have not yet issued what this call of `rank` needs from them.

    Args:
        rank: who waits.
        call: the call that it waits in.
        progresses: what is known of the ranks; one that is missing here has issued nothing.
        strict: whether to name only ranks without which the call surely cannot complete.
    """

    def known(other: int) -> Progress:
        return progresses.get(other, _NOTHING)

    if call.op == "send":
        return {call.peer} if _received(known(call.peer), rank, call) <= call.seq else set()
    if call.op == "recv" and call.peer is None:
        peers = set(call.ranks) - {rank}
        taken = {q: known(rank).recvs.get((call.group, q, call.tag), 0) for q in peers}
        return peers if all(_sent(known(q), rank, call) <= taken[q] for q in peers) else set()
    if call.op == "recv":
        never_sent = not strict and thrown_away(known(call.peer), rank, call)
        return {call.peer} if _sent(known(call.peer), rank, call) <= call.seq or never_sent else set()
    needed = _needed(rank, call) if strict or call.members else set(call.ranks) - {rank}
    return {q for q in needed if known(q).collectives.get((call.group, call.ranks), 0) <= call.seq}


def thrown_away(progress: Progress, receiver: int, call: Call) -> Call | None:
    """The isend for this receive if its handle was dropped before it was over: Gloo may never send it."""
    meant = (call.group, receiver, call.tag, call.seq)
    return next((c for c in progress.dropped if (c.group, c.peer, c.tag, c.seq) == meant), None)


def _sent(progress: Progress, receiver: int, call: Call) -> int:
    """Messages sent so far that a receive of this rank may take."""
    return progress.sends.get((call.group, receiver, call.tag), 0)


def _received(progress: Progress, sender: int, call: Call) -> int:
    """Receives issued that this sender's messages may match."""
    return sum(progress.recvs.get((call.group, peer, call.tag), 0) for peer in (sender, None))


def _needed(rank: int, call: Call) -> set[int]:
    """Ranks without which the call cannot complete here, whatever algorithm the backend uses."""
    if call.root is not None and call.root != rank:
        return {call.root}
    return set(call.members or call.ranks) - {rank}
