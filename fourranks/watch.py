"""Proves that ranks wait for something that cannot come: pure logic over what the ranks report.

A thread is *blocked* while it stands still in one call, a rank when all of its threads that may communicate
are. A call completes only after certain other ranks have issued their side of it. Ranks that are blocked or
have ended issue nothing, so a set of blocked ranks in which each call of each misses a rank of the set, or
one that has ended, will wait forever. So will a rank in a call that has failed on a rank that it needs.
Reports are taken at slightly different times; a rank counts as blocked only if two reports in a row show it
in the same calls.

NCCL only launches a call, and the rank goes on. Its cell is not over before the call is, so a launched call
that misses a rank that has ended is a proof, too. It also runs the calls of a group one after the other: a
message whose other side was issued may wait for a call before that one. `diagnosis` puts a proof into words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .protocol.calls import Call
from .protocol.progress import Progress
from .reports import Reports

STANDSTILL_ROUNDS = 5  # unchanged reports after which nothing is assumed to be in flight
# And after which a message that a GPU has come to has filled what there is of buffers. Ranks that share a GPU
# take turns on it: 16 MiB take 50 ms there, and more while others use the GPU.
QUEUE_ROUNDS = 30


class End(Enum):
    """How a cell can end on a rank, in words."""

    FINISHED = "finished the cell"
    RAISED = "raised"
    DIED = "died"
    AWAY = "took no part in this cell"


@dataclass(frozen=True)
class Ended:
    """How a cell has ended on one rank; `str` says so: "raised ValueError"."""

    how: End
    exception: str = ""  # the name of the one that it has raised

    def __str__(self) -> str:
        return f"{self.how.value} {self.exception}".rstrip()


@dataclass(frozen=True)
class RankView:
    """One rank as it is known: how far it is, and how its cell ended if it has."""

    progress: Progress
    ended: Ended | None = None  # None while it runs


@dataclass(frozen=True)
class Deadlock:
    """A proof: each of these ranks waits for ranks that will never come."""

    blocked: dict[int, Call]
    missing: dict[int, tuple[int, ...]]  # whom each blocked rank waits for
    views: dict[int, RankView]  # of all ranks, as they were
    conflicts: dict[int, Call] = field(default_factory=dict)  # other calls at the same place of a group
    failed: dict[int, Call] = field(default_factory=dict)  # the awaited calls of ranks on which they failed

    @property
    def settled(self) -> bool:
        """Whether every rank stands still or has ended, so that nothing more will come to light."""
        return all(view.ended or view.progress.blocked for view in self.views.values())

    @property
    def ended(self) -> dict[int, Ended]:
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
        self._before: dict[int, list[int]] = {}
        self._unchanged = 0

    def observe(self, views: dict[int, RankView]) -> Deadlock | None:
        """Take one report of every rank; returns a proof as soon as there is one."""
        waits = {rank: _waits(view) for rank, view in views.items()}
        now = {rank: [call.index for call in calls] for rank, calls in waits.items() if calls}
        steady = {rank for rank in now if self._before.get(rank) == now[rank]}
        self.suspicious = bool(steady)
        self._unchanged = self._unchanged + 1 if now == self._before else 0
        self._before = now
        blocked = {rank: waits[rank] for rank in sorted(steady) if views[rank].progress.blocked is not None}
        launched = {rank: waits[rank] for rank in steady - set(blocked)}
        reports = Reports({rank: view.progress for rank, view in views.items()})
        return _disagreement(blocked, views, reports) or _deadlock(
            blocked, launched, views, reports, self._unchanged
        )


def _waits(view: RankView) -> list[Call]:
    """Return the calls without which the rank does not go on, or, with NCCL, its cell is not over."""
    if view.progress.blocked is not None:
        return view.progress.waits
    launched = view.progress.launched
    return [launched] if launched is not None and view.ended is None else []


def in_step(progresses: dict[int, Progress]) -> bool:
    """Return whether all ranks have issued the same collectives, and no message is unmatched."""
    counts: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for progress in progresses.values():
        for key, count in progress.collectives.items():
            counts.setdefault(key, []).append(count)
    if any(len(found) < len(key[1]) or len(set(found)) > 1 for key, found in counts.items()):
        return False
    return all(_sent_to(rank, progresses) == sum(progresses[rank].recvs.values()) for rank in progresses)


def _sent_to(rank: int, progresses: dict[int, Progress]) -> int:
    return sum(
        count
        for progress in progresses.values()
        for (_, peer, _), count in progress.sends.items()
        if peer == rank
    )


def _disagreement(
    steady: dict[int, list[Call]], views: dict[int, RankView], reports: Reports
) -> Deadlock | None:
    """Find two ranks with different calls at the same place of the same group."""
    for rank, call in ((rank, call) for rank, calls in steady.items() for call in calls):
        if call.is_point_to_point:
            conflicts = _misfit(rank, call, views)
        else:
            conflicts = _contradictions(rank, call, reports)
        if any(_meet_in_group(rank, call, other, their) for other, their in conflicts.items()):
            same_place = {
                other: their
                for other, calls in steady.items()
                for their in calls
                if their.place_in_group == call.place_in_group and not their.is_point_to_point
            }
            blocked = {rank: call} if call.is_point_to_point else same_place
            return Deadlock(blocked, dict.fromkeys(blocked, ()), views, conflicts)
    return None


def _contradictions(rank: int, call: Call, reports: Reports) -> dict[int, Call]:
    """Return the collectives of other ranks at the place of this one that do not go together with it."""
    needed = _needed(rank, call) if call.is_limited else None
    return {
        other: their
        for calls in reports.alike(call)
        if (agrees := call.agrees_with(next(iter(calls.values())))) is False or call.exchange is not None
        for other, their in calls.items()
        if other != rank
        and (needed is None or other in needed)
        and not their.error  # then that it failed is the news
        and not (their.is_limited and their.end is None)  # then it is about to fail
        and not (agrees and call.fits(rank, their, other))
    }


def _meet_in_group(rank: int, call: Call, other: int, their: Call) -> bool:
    """Tell whether two calls of new_group get in each other's way, if that is what they are.

    Torch numbers groups, and members find each other by the number: a rank in no group there harms none.
    """
    if not call.members:
        return True
    return rank in call.members and (other in call.members or other in their.members)


def _misfit(rank: int, call: Call, views: dict[int, RankView]) -> dict[int, Call]:
    """Return the other side of a message if the receiver's tensor is too small for it."""
    for other in set(call.ranks) - {rank} if call.peer is None else [call.peer]:
        for their in views[other].progress.recent:
            if {call.op, their.op} == {"send", "recv"} and their.peer in (rank, None):
                ends = ((rank, call), (other, their))
                (sender, sent), (receiver, received) = ends if call.op == "send" else ends[::-1]
                if sent.nbytes > received.nbytes and _meet(sender, sent, received, views[receiver].progress):
                    return {other: their}
    return {}


def _meet(sender: int, sent: Call, received: Call, receiver: Progress) -> bool:
    """Tell whether this receive is for this message.

    One from any source is for the next message of each rank, unless several are under way.
    """
    seq = received.seq
    if received.peer is None:
        if receiver.recvs.get((received.group, None, received.tag), 0) > 1:
            return False
        seq = receiver.recvs.get((received.group, sender, received.tag), 0)
    return (sent.group, sent.tag, sent.seq) == (received.group, received.tag, seq)


def _deadlock(
    blocked: dict[int, list[Call]],
    launched: dict[int, list[Call]],
    views: dict[int, RankView],
    reports: Reports,
    unchanged: int,
) -> Deadlock | None:
    """Find the largest set of ranks that only wait for each other and for ranks that have ended."""
    waits, strict, queues = blocked | launched, unchanged < STANDSTILL_ROUNDS, unchanged >= QUEUE_ROUNDS
    ended = {rank for rank, view in views.items() if view.ended and not view.progress.at_work} - set(blocked)
    behind = {
        call: _behind(rank, call, reports)
        for rank, calls in (waits if queues else {}).items()
        for call in calls
    }
    awaited = {
        rank: [_awaited(rank, call, reports, strict, ended, behind.get(call, set())) for call in calls]
        for rank, calls in waits.items()
    }
    failed = {
        call: their
        for rank, calls in ({} if strict else blocked).items()
        for call in calls
        if not missing(rank, call, reports) and (their := _failed(rank, call, reports))
    }
    stuck = set(blocked) | {
        rank for rank, (call,) in launched.items() if behind.get(call) or awaited[rank][0][1] & ended
    }
    idle = stuck | ended
    while loose := {rank for rank in stuck if not _hopeless(awaited[rank], idle, failed)}:
        stuck -= loose
        idle = stuck | ended
    if all(views[rank].ended for rank in stuck):  # only threads that they have left behind
        return None
    first = {rank: awaited[rank][0] for rank in sorted(stuck)}
    return Deadlock(
        {rank: call for rank, (call, _) in first.items()},
        {rank: tuple(sorted(failed.get(call, ranks))) for rank, (call, ranks) in first.items()},
        views,
        failed={other: their for call, _ in first.values() for other, their in failed.get(call, {}).items()},
    )


def _awaited(
    rank: int,
    call: Call,
    reports: Reports,
    strict: bool,
    ended: set[int],
    behind: set[int],
) -> tuple[Call, set[int]]:
    """Return the ranks that a call of `rank` waits for, and which call of its batch does, the ended first."""
    found = [(each, missing(rank, each, reports, strict)) for each in (*call.batch, call)]
    return max([*found, (call, behind)], key=lambda each: (bool(each[1] & ended), bool(each[1])))


def _behind(rank: int, call: Call, reports: Reports) -> set[int]:
    """Return the ranks that have issued the other side of a message of this batch, but do not come to it."""
    return {
        each.peer
        for each in (*call.batch, call)
        if each.peer is not None
        for theirs in reports[each.peer].recent
        if is_other_side(rank, each, theirs) and _is_held_up(each.peer, theirs, reports)
    }


def _is_held_up(rank: int, call: Call, reports: Reports) -> bool:
    """Tell whether this call of `rank` stands behind another, or in a batch that waits for another rank."""
    progress = reports[rank]
    now, starts = progress.launched, progress.blocked
    if now is not None and progress.reached and now.group == call.group and now.index < call.index:
        return True
    if not progress.launches or starts is None or now is starts:
        return False
    together = (*starts.batch, starts)
    return call in together and any(missing(rank, each, reports) for each in together)


def _hopeless(
    awaited: list[tuple[Call, set[int]]], idle: set[int], failed: dict[Call, dict[int, Call]]
) -> bool:
    """Tell whether each of these calls has failed elsewhere, or misses ranks that issue nothing any more."""
    return all(
        # From any rank: hopeless only if none is left that could send.
        bool(ranks) and ranks <= idle if call.takes_from_any else bool(ranks & idle) or call in failed
        for call, ranks in awaited
    )


def _failed(rank: int, call: Call, reports: Reports) -> dict[int, Call]:
    """Return the other side of this call on ranks that it needs, where that has ended with an error."""
    if call.is_point_to_point:
        needed = set(call.ranks) - {rank} if call.peer is None else {call.peer}
        return {
            other: their
            for other in needed
            for their in reports[other].failed
            if is_other_side(rank, call, their)
        }
    place = call.place_in_group
    needed = _needed(rank, call)
    return {
        other: their for other in needed for their in reports[other].failed if their.place_in_group == place
    }


def is_other_side(rank: int, call: Call, their: Call) -> bool:
    """Return whether another rank's call is the other side of this message of `rank`."""
    return (
        {call.op, their.op} == {"send", "recv"}
        and their.peer == rank
        and (their.group, their.tag, their.seq) == (call.group, call.tag, call.seq)
    )


def missing(rank: int, call: Call, reports: Reports, strict: bool = True) -> set[int]:
    """Return the ranks that have not yet issued what this call of `rank` needs from them.

    Args:
        rank: the one that waits.
        call: the call that it waits in.
        reports: of all ranks.
        strict: whether to name only ranks without which the call surely cannot complete.
    """
    if call.waits_for_key:  # nothing tells who is to set it, only that it would be there by now
        return set() if strict else set(call.ranks) - {rank}
    if call.is_point_to_point and call.peer is not None:
        issued = _received if call.op == "send" else _sent
        return {call.peer} if issued(reports[call.peer], rank, call) <= call.seq else set()
    if call.op == "recv":
        peers = set(call.ranks) - {rank}
        taken = {peer: reports[rank].recvs.get((call.group, peer, call.tag), 0) for peer in peers}
        return peers if all(_sent(reports[peer], rank, call) <= taken[peer] for peer in peers) else set()
    exact = strict or call.members or call.op == "monitored_barrier"  # these are alike on all backends
    needed = _needed(rank, call) if exact else set(call.ranks) - {rank}
    return needed & reports.late(call)


def _sent(progress: Progress, receiver: int, call: Call) -> int:
    """Count the messages sent so far that a receive of this rank may take."""
    return progress.sends.get((call.group, receiver, call.tag), 0)


def _received(progress: Progress, sender: int, call: Call) -> int:
    """Count the receives issued that this sender's messages may match."""
    return sum(progress.recvs.get((call.group, peer, call.tag), 0) for peer in (sender, None))


def _needed(rank: int, call: Call) -> set[int]:
    """Return the ranks without which the call cannot complete here, whatever algorithm the backend uses."""
    root = call.ranks[0] if call.op == "monitored_barrier" else call.root
    if root is not None and root != rank:
        return {root}
    return set(call.members or call.ranks) - {rank}
