"""Puts a proven deadlock into words: who waits where for whom, and which mistake most likely led there.

Pure text from what `watch` has proven and the ranks have reported. A hint is given only where the reports
show its sign; the first that applies, from the most to the least specific.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .errors import name_ranks, sentence_case
from .rank.places import Block, Place
from .trace import Call
from .watch import Deadlock, thrown_away

Places = Callable[[Call], Place]


def explain(deadlock: Deadlock, places: Places) -> str:
    """Who waits where for whom, and what to look for."""
    return "\n".join([*_waits(deadlock, places), "", hint(deadlock, places)])


def hint(deadlock: Deadlock, places: Places) -> str:
    """The likely mistake, and how to mend it."""
    for find in _HINTS:
        if found := find(deadlock, places):
            return found
    return "Each of these ranks waits for another of them. Check the order in which they communicate."


def describe(call: Call, world_size: int, in_detail: bool = False) -> str:
    """A call as a reader would name it: "recv from rank 2", "all_reduce among ranks 0-1 [SUM, …]"."""
    name = call.op
    if call.op == "send":
        name = f"send to rank {call.peer}"
    elif call.op == "recv":
        name = "recv from any rank" if call.peer is None else f"recv from rank {call.peer}"
    elif len(call.ranks) < world_size:
        name = f"{call.op} among {name_ranks(call.ranks)}"
    details = [*_details(call).values()] if in_detail else []
    return f"{name} [{', '.join(details)}]" if details else name


def _details(call: Call) -> dict[str, str]:
    """What the ranks of one call may disagree on."""
    details = {"src or dst": f"src/dst {call.root}"} if call.root is not None else {}
    details |= {"reduce op": call.reduce_op} if call.reduce_op else {}
    details |= {"tag": f"tag {call.tag}"} if call.tag else {}
    if call.members:
        details["members"] = f"ranks {', '.join(map(str, call.members))}"
    if call.shape:
        details["shape"] = f"shape {list(call.shape)}"
    if call.dtype:
        details["dtype"] = call.dtype
    return details


# --- who waits where for whom ----------------------------------------------------------------------------


def _waits(deadlock: Deadlock, places: Places) -> Iterator[str]:
    calls = deadlock.conflicts | deadlock.blocked
    in_detail = bool(deadlock.conflicts) and (
        len({call.op for call in calls.values()}) == 1 or any(c.is_point_to_point for c in calls.values())
    )
    for ranks in _alike(calls, places, len(deadlock.views)):
        call = calls[ranks[0]]
        missing = sorted({q for rank in ranks for q in deadlock.missing.get(rank, ())} - set(ranks))
        what = f"{describe(call, len(deadlock.views), in_detail)} ({places(call)})"
        named = call.peer is not None or deadlock.conflicts
        whom = f", for {name_ranks(missing)}" if missing and not named else ""
        verb = "called" if _is_over(ranks[0], deadlock) else "wait in" if len(ranks) > 1 else "waits in"
        yield f"  {sentence_case(name_ranks(ranks))} {verb} {what}{whom}."
    for how in sorted(set(deadlock.ended.values())):
        ranks = [rank for rank, ended in deadlock.ended.items() if ended == how]
        yield f"  {sentence_case(name_ranks(ranks))} {how}."


def _is_over(rank: int, deadlock: Deadlock) -> bool:
    """Whether the rank is no longer in the call that contradicts the others."""
    return rank not in deadlock.blocked and deadlock.conflicts[rank].end is not None


def _alike(calls: dict[int, Call], places: Places, world_size: int) -> list[list[int]]:
    """Ranks that are in the same call on the same line, together."""
    together: dict[tuple[str, Place], list[int]] = {}
    for rank, call in sorted(calls.items()):
        together.setdefault((describe(call, world_size, in_detail=True), places(call)), []).append(rank)
    return list(together.values())


# --- hints -----------------------------------------------------------------------------------------------


def _too_small_a_buffer(deadlock: Deadlock, places: Places) -> str | None:
    calls = [*deadlock.blocked.values(), *deadlock.conflicts.values()]
    if not (deadlock.conflicts and any(call.is_point_to_point for call in calls)):
        return None
    sent, room = (next(call for call in calls if call.op == op) for op in ("send", "recv"))
    return (
        f"The tensor that receives a message must be at least as large as the one that is sent:\n"
        f"{sent.nbytes} bytes are sent, and there is room for {room.nbytes}."
    )


def _left_out(deadlock: Deadlock, places: Places) -> str | None:
    """Some ranks ran the line of a call less often than others: a loop left early, a branch not taken."""
    elsewhere = deadlock.conflicts | deadlock.blocked if deadlock.conflicts else {}
    for rank, call in deadlock.blocked.items():
        absent = [q for q, their in elsewhere.items() if _line(their) != _line(call)]
        absent += [q for q in deadlock.missing[rank] if q in deadlock.ended]
        passes = {q: deadlock.views[q].progress.passes.get(_line(call), 0) for q in (rank, *absent)}
        fewest = min(passes.values())
        early = [q for q in absent if passes[q] == fewest < passes[rank]]
        if early and not call.is_point_to_point and (found := _skipped(early, passes, rank, call, places)):
            return found
    return None


def _skipped(early: list[int], passes: dict[int, int], rank: int, call: Call, places: Places) -> str | None:
    who, times = sentence_case(name_ranks(early)), passes[rank] - passes[early[0]]
    for block in places(call).blocks:
        if block.kind == "branch" and not passes[early[0]]:
            return (
                f"{who} skipped the {call.op} inside `{block.text}` (line {block.line}).\n"
                "A collective needs every rank of its group: move it out of the branch."
            )
        if block.kind == "loop" and (passes[early[0]] or not _has_branch(places(call).blocks)):
            iterations = "one iteration" if times == 1 else f"{times} iterations"
            return (
                f"{who} left the loop `{block.text}` (line {block.line}) {iterations} early, or skipped "
                f"{'it' if times == 1 else 'them'}:\n"
                f"rank {rank} is in its {call.op} number {passes[rank]} there, {name_ranks(early)} called "
                f"{passes[early[0]]}. All ranks need the same number."
            )
    return None


def _has_branch(blocks: tuple[Block, ...]) -> bool:
    return any(block.kind == "branch" for block in blocks)


def _line(call: Call) -> tuple[str, int]:
    return call.file, call.line


def _other_ranks_stay_away(deadlock: Deadlock, places: Places) -> str | None:
    away = [rank for rank, how in deadlock.ended.items() if how == "took no part in this cell"]
    if not away:
        return None
    return (
        f"The cell ran without {name_ranks(away)}. Run it on all ranks, or communicate in a group of those\n"
        "that run it: dist.new_group, called by every rank."
    )


def _groups_disagree(deadlock: Deadlock, places: Places) -> str | None:
    calls = [*deadlock.blocked.values(), *deadlock.conflicts.values()]
    if not any(call.op == "new_group" for call in calls):
        return None
    return (
        "Every rank must call new_group, with the same members and in the same order: also the ranks\n"
        "that are not in the group."
    )


def _details_disagree(deadlock: Deadlock, places: Places) -> str | None:
    calls = deadlock.conflicts | deadlock.blocked
    if not deadlock.conflicts or len({call.op for call in calls.values()}) > 1:
        return None
    rank = min(calls)
    other = next((q for q in sorted(calls) if not calls[q].agrees_with(calls[rank])), None)
    if other is None:
        return (
            f"What a rank gives to another in {calls[rank].op} must be as large as what that one takes from "
            "it: compare\nthe split sizes, or the lists of tensors, of each two ranks."
        )
    mine, theirs = _details(calls[rank]), _details(calls[other])
    names = [name for name in mine if mine[name] != theirs.get(name)]
    if names == ["src or dst"] and all(call.root == q for q, call in calls.items()):
        return (
            f"Each rank names itself: the src or dst of {calls[rank].op} is one rank, and all ranks name "
            "the same."
        )
    op = calls[rank].op
    return (
        f"Rank {rank} and rank {other} disagree on the {' and the '.join(names) or 'number of elements'}: "
        f"in one {op} all ranks must give the same."
    )


def _orders_disagree(deadlock: Deadlock, places: Places) -> str | None:
    if not deadlock.conflicts:
        return None
    return "All ranks of a group must call the same collectives in the same order."


def _cycle_of_one_kind(deadlock: Deadlock, places: Places) -> str | None:
    kinds = {call.op for call in deadlock.blocked.values()}
    cycle = _cycle(deadlock)
    if len(cycle) < 2 or len(kinds) > 1 or not kinds <= {"send", "recv"}:
        return None
    path = " → ".join(map(str, [*cycle, cycle[0]]))
    sends, asynchronous = kinds == {"send"}, all(call.asynchronous for call in deadlock.blocked.values())
    name = f"{'send/send' if sends else 'recv/recv'} cycle ({path})"
    if asynchronous:
        first = "recv" if sends else "isend"
        return f"A {name}: every rank waits too early. Issue the {first} first, then wait for both handles."
    why = "a blocking send waits until its receiver asks" if sends else "all receive first, so nobody sends"
    return (
        f"A {name}: {why}.\n"
        f"Use {'isend' if sends else 'irecv'} (or batch_isend_irecv), or order by parity: even ranks send "
        "first, odd ones receive first."
    )


def _cycle(deadlock: Deadlock) -> list[int]:
    """Ranks of which each waits for the next and the last for the first; empty if there are none."""
    path: list[int] = []
    rank: int | None = next(iter(deadlock.blocked))
    while rank is not None and rank not in path:
        path.append(rank)
        rank = next((q for q in deadlock.missing[rank] if q in deadlock.blocked), None)
    return path[path.index(rank) :] if rank is not None else []


def _other_tag_or_peer(deadlock: Deadlock, places: Places) -> str | None:
    """A message that nobody asked for lies beside a receive, or a send, that nobody answers."""
    for rank, call in deadlock.blocked.items():
        if call.peer is None:
            continue
        theirs = deadlock.views[call.peer].progress
        stray = theirs.sends if call.op == "recv" else theirs.recvs
        taken = deadlock.views[rank].progress
        matched = taken.recvs if call.op == "recv" else taken.sends
        for (group, peer, tag), count in stray.items():
            if peer == rank and tag != call.tag and count > matched.get((group, call.peer, tag), 0):
                did = "has sent" if call.op == "recv" else "asks for"
                return (
                    f"Rank {call.peer} {did} a message with tag {tag}, and rank {rank}'s {call.op} has tag "
                    f"{call.tag}: both sides must give the same tag."
                )
        if wrong := _wrong_peer(deadlock, rank, call):
            return wrong
    return None


def _wrong_peer(deadlock: Deadlock, rank: int, call: Call) -> str | None:
    """The peer's last message went to, or came from, another rank that does not answer it."""
    for their in reversed(deadlock.views[call.peer].progress.recent):
        if {call.op, their.op} != {"send", "recv"} or their.peer in (rank, None):
            continue
        answers = deadlock.views[their.peer].progress
        answered = answers.recvs if their.op == "send" else answers.sends
        if answered.get((their.group, call.peer, their.tag), 0) <= their.seq:
            way = "sends to" if their.op == "send" else "receives from"
            return (
                f"Rank {call.peer} {way} rank {their.peer}, which does not answer, and rank {rank} waits for "
                f"it: look at the {'dst' if their.op == 'send' else 'src'} on rank {call.peer}."
            )
    return None


def _handle_thrown_away(deadlock: Deadlock, places: Places) -> str | None:
    for rank, call in deadlock.blocked.items():
        if call.op != "recv" or call.peer is None:
            continue
        if send := thrown_away(deadlock.views[call.peer].progress, rank, call):
            return (
                f"The handle of rank {call.peer}'s isend ({places(send)}) was thrown away before the message "
                "was sent, and then\nit may never be: keep what isend returns and call its wait()."
            )
    return None


def _message_without_match(deadlock: Deadlock, places: Places) -> str | None:
    if not any(call.is_point_to_point for call in deadlock.blocked.values()):
        return None
    return "Every send needs a matching recv (same pair of ranks, same tag, same order), and the reverse."


def _groups_in_other_order(deadlock: Deadlock, places: Places) -> str | None:
    groups = {(call.group, call.ranks) for call in deadlock.blocked.values()}
    if len(groups) < 2 or len(_cycle(deadlock)) < 2:
        return None
    return "Ranks that share several groups must use them in the same order."


def _rank_is_missing(deadlock: Deadlock, places: Places) -> str | None:
    if not deadlock.ended:
        return None
    rank = next(rank for rank, missing in deadlock.missing.items() if set(missing) & set(deadlock.ended))
    call = deadlock.blocked[rank]
    absent = [q for q in deadlock.missing[rank] if q in deadlock.ended]
    if (
        call.function.isidentifier()
        and call.line
        and not deadlock.views[absent[0]].progress.passes.get(_line(call))
    ):
        return (
            f"{sentence_case(name_ranks(absent))} never came to this line of {call.function}: look for an "
            "early return in front of it,\nor for a rank that does not call it."
        )
    return (
        "A collective needs every rank of its group. Look for an `if rank ...`, an early return or\n"
        "an exception in front of it, and for loops of different lengths."
    )


_HINTS = (
    _too_small_a_buffer,
    _groups_disagree,
    _other_ranks_stay_away,
    _left_out,
    _details_disagree,
    _orders_disagree,
    _cycle_of_one_kind,
    _handle_thrown_away,
    _other_tag_or_peer,
    _message_without_match,
    _groups_in_other_order,
    _rank_is_missing,
)
