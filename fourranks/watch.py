"""Proves that ranks wait for something that cannot come: pure logic over what the ranks report.

A rank is *blocked* while its main thread stands still in one call. The call completes only after certain
other ranks have issued their side of it. Ranks that are blocked or have ended issue nothing, so a set of
blocked ranks in which each misses a rank of the set, or one that has ended, will wait forever. Reports are
taken at slightly different times; a rank counts as blocked only if two reports in a row show it in the same
call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import name_ranks
from .recorder import Progress
from .trace import Call

STANDSTILL_ROUNDS = (
    12  # unchanged reports after which a missing member of a rooted collective is a proof, too
)


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
    ended: dict[int, str]  # how the ended ones among the missing ended
    conflicts: dict[int, Call] = field(
        default_factory=dict
    )  # calls that disagree at the same place of a group


class Watch:
    """Compares report after report of one cell."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._unchanged = 0

    def observe(self, views: dict[int, RankView]) -> Deadlock | None:
        """Take one report of every rank; returns a proof as soon as there is one."""
        blocked = {
            rank: view.progress.blocked
            for rank, view in views.items()
            if view.ended is None and view.progress.blocked is not None
        }
        now = {rank: call.index for rank, call in blocked.items()}
        steady = {rank: call for rank, call in blocked.items() if self._before.get(rank) == call.index}
        self._unchanged = self._unchanged + 1 if now == self._before else 0
        self._before = now
        strict = self._unchanged < STANDSTILL_ROUNDS
        return _disagreement(steady, views) or _deadlock(steady, views, strict)


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
                if (their := _call_at(views[other].progress, call)) and not call.agrees_with(their)
            }
        if conflicts:
            same_place = {r: c for r, c in steady.items() if (c.group, c.seq) == (call.group, call.seq)}
            blocked = {rank: call} if call.is_point_to_point else same_place
            return Deadlock(blocked, dict.fromkeys(blocked, ()), {}, conflicts)
    return None


def _call_at(progress: Progress, call: Call) -> Call | None:
    """The collective that another rank issued at the same place of the same group, if it is still known."""
    for recent in progress.recent:
        if not recent.is_point_to_point and recent.group == call.group and recent.seq == call.seq:
            return recent
    return None


def _misfit(rank: int, call: Call, views: dict[int, RankView]) -> dict[int, Call]:
    """The other side of a message if the receiver's tensor is too small for it."""
    if call.peer is None:
        return {}
    for their in views[call.peer].progress.recent:
        if {call.op, their.op} != {"send", "recv"}:
            continue
        if (their.group, their.peer, their.tag, their.seq) == (call.group, rank, call.tag, call.seq):
            sent, received = (call, their) if call.op == "send" else (their, call)
            return {call.peer: their} if sent.nbytes > received.nbytes else {}
    return {}


def _deadlock(steady: dict[int, Call], views: dict[int, RankView], strict: bool) -> Deadlock | None:
    """The largest set of blocked ranks that only wait for each other and for ranks that have ended."""
    ended = {rank for rank, view in views.items() if view.ended is not None}
    missing = {rank: _missing(rank, call, views, strict) for rank, call in steady.items()}
    stuck = set(steady)
    while loose := {rank for rank in stuck if not _hopeless(steady[rank], missing[rank], stuck | ended)}:
        stuck -= loose
    if not stuck:
        return None
    waits = {rank: tuple(sorted(missing[rank])) for rank in sorted(stuck)}
    return Deadlock(
        {rank: steady[rank] for rank in sorted(stuck)},
        waits,
        {rank: views[rank].ended for ranks in waits.values() for rank in ranks if rank in ended},
    )


def _hopeless(call: Call, missing: set[int], idle: set[int]) -> bool:
    if call.op == "recv" and call.peer is None:  # any source: hopeless only if nobody is left to send
        return bool(missing) and missing <= idle
    return bool(missing & idle)


def _missing(rank: int, call: Call, views: dict[int, RankView], strict: bool) -> set[int]:
    """Ranks that have not yet issued what this call needs from them."""
    if call.op == "send":
        return {call.peer} - {q for q in [call.peer] if _received(views[q].progress, rank, call) > call.seq}
    if call.op == "recv":
        peers = [q for q in call.ranks if q != rank] if call.peer is None else [call.peer]
        waiting = {
            q for q in peers if views[q].progress.sends.get((call.group, rank, call.tag), 0) <= call.seq
        }
        return waiting if call.peer is not None or len(waiting) == len(peers) else set()
    needed = _needed(rank, call) if strict else set(call.ranks) - {rank}
    return {q for q in needed if views[q].progress.collectives.get((call.group, call.ranks), 0) <= call.seq}


def _received(progress: Progress, sender: int, call: Call) -> int:
    """Receives issued that this sender's messages may match."""
    return sum(progress.recvs.get((call.group, peer, call.tag), 0) for peer in (sender, None))


def _needed(rank: int, call: Call) -> set[int]:
    """Ranks without which the call cannot complete here, whatever algorithm the backend uses."""
    if call.root is not None and call.root != rank:
        return {call.root}
    return set(call.ranks) - {rank}


# --- in words --------------------------------------------------------------------------------------------


def explain(deadlock: Deadlock, place: Callable[[Call], str]) -> str:
    """Who waits where for whom, and what to look for.

    Args:
        deadlock: the proof.
        place: how to name the line of a call, for instance "line 4: dist.barrier()".
    """
    calls = {**deadlock.conflicts, **deadlock.blocked}
    in_detail = bool(deadlock.conflicts) and (
        len({call.op for call in calls.values()}) == 1
        or any(call.is_point_to_point for call in calls.values())
    )
    lines = []
    for ranks, call in _alike(calls, place):
        missing = sorted({q for rank in ranks for q in deadlock.missing.get(rank, ())} - set(ranks))
        what = f"{_name(call, in_detail)} ({place(call)})"
        whom = f", for {name_ranks(missing)}" if missing and not deadlock.conflicts else ""
        lines.append(f"  {_sentence(ranks)} {'wait' if len(ranks) > 1 else 'waits'} in {what}{whom}.")
    for how in sorted(set(deadlock.ended.values())):
        ranks = [rank for rank, ended in deadlock.ended.items() if ended == how]
        lines.append(f"  {_sentence(ranks)} {how}.")
    return "\n".join(lines + ["", _advice(deadlock)])


def _alike(calls: dict[int, Call], place: Callable[[Call], str]) -> list[tuple[list[int], Call]]:
    """Ranks that are in the same call on the same line, together."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, call in sorted(calls.items()):
        together.setdefault((_name(call, in_detail=True), place(call)), []).append(rank)
    return [(ranks, calls[ranks[0]]) for ranks in together.values()]


def _name(call: Call, in_detail: bool) -> str:
    name = call.op
    if call.op == "send":
        name = f"send to rank {call.peer}"
    elif call.op == "recv":
        name = "recv from any rank" if call.peer is None else f"recv from rank {call.peer}"
    details = [f"src/dst {call.root}"] if call.root is not None else []
    details += [call.reduce_op] if call.reduce_op else []
    details += [f"shape {list(call.shape)} {call.dtype}"] if call.shape else []
    return f"{name} [{', '.join(details)}]" if in_detail and details else name


def _sentence(ranks: list[int]) -> str:
    text = name_ranks(ranks)
    return text[0].upper() + text[1:]


def _advice(deadlock: Deadlock) -> str:
    calls = [*deadlock.blocked.values(), *deadlock.conflicts.values()]
    if deadlock.conflicts:
        if any(call.is_point_to_point for call in calls):
            return "The tensor that receives a message must be at least as large as the one that is sent."
        if len({call.op for call in calls}) > 1:
            return "All ranks of a group must call the same collectives in the same order."
        return (
            "In one collective all ranks must give the same number of elements, dtype, src or dst,\n"
            "and reduce op."
        )
    if all(call.op == "send" for call in calls):
        return (
            "A blocking send waits until its receiver asks for the message. Let half of the ranks\n"
            "receive first (for instance the odd ones), or use isend, or batch_isend_irecv."
        )
    if any(call.is_point_to_point for call in calls):
        return "Every send needs a matching recv (same pair of ranks, same tag, same order), and the reverse."
    if deadlock.ended:
        return (
            "A collective needs every rank of its group. Look for an `if rank ...`, an early return or\n"
            "an exception in front of it, and for loops of different lengths."
        )
    return "Each of these ranks waits for another of them. Check the order in which they communicate."
