"""Mistakes around sends and receives: cycles, wrong peers and tags, too few messages, too small a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..protocol.calls import Call
from ..scene import Scene, stack
from ..watch import is_other_side


def too_small_a_buffer(scene: Scene) -> str | None:
    """Explain a message that met a receive without room for it."""
    calls = [*scene.deadlock.blocked.values(), *scene.deadlock.conflicts.values()]
    if not (scene.deadlock.conflicts and any(call.is_point_to_point for call in calls)):
        return None
    sent, room = (next(call for call in calls if call.op == op) for op in ("send", "recv"))
    return (
        f"The tensor that receives a message must be at least as large as the one that is sent:\n"
        f"{sent.nbytes} bytes are sent, and there is room for {room.nbytes}. Messages between two ranks "
        "arrive in the\norder in which they were sent: if both sizes are right, receive them in that order."
    )


def other_tag_or_peer(scene: Scene) -> str | None:
    """Explain a message that no rank asked for, or a receive that no rank answers."""
    for rank, call in scene.deadlock.blocked.items():
        if not call.is_point_to_point or call.peer is None:
            continue
        if found := _other_tag(scene, rank, call, call.peer) or _other_peer(scene, rank, call, call.peer):
            return found
    return None


def _other_tag(scene: Scene, rank: int, call: Call, other: int) -> str | None:
    theirs, own = scene.view(other).progress, scene.view(rank).progress
    stray, matched = (theirs.sends, own.recvs) if call.op == "recv" else (theirs.recvs, own.sends)
    for (group, peer, tag), count in stray.items():
        if peer == rank and tag != call.tag and count > matched.get((group, other, tag), 0):
            did = "has sent" if call.op == "recv" else "expects"
            return (
                f"Rank {other} {did} a message with tag {tag}, but rank {rank}'s {call.op} has tag "
                f"{call.tag}: use the same tag on both sides."
            )
    return None


def _other_peer(scene: Scene, rank: int, call: Call, other: int) -> str | None:
    """Explain a peer that waits for a rank that is over, or has ended behind a message to it."""
    for their, third in _for_another(scene, rank, call, other):
        if their.seq:  # earlier ones did match: the rank is right, and their numbers differ
            continue
        if scene.view(third).ended is not None:  # else it may come yet, once it is free
            way = "sends to" if their.op == "send" else "receives from"
            return (
                f"Rank {other} {way} rank {third} ({scene.at(their.file, their.line)}), which does "
                f"not answer, while rank {rank} waits for rank {other}:\ncheck the argument "
                f"{_end_named_by(their)} on rank {other}."
            )
    return None


def _for_another(scene: Scene, rank: int, call: Call, other: int) -> Iterator[tuple[Call, int]]:
    """Yield the peer's calls that might answer, but name a third rank, which does not answer them."""
    for their in reversed(scene.view(other).progress.recent):
        if {call.op, their.op} != {"send", "recv"} or their.peer is None or their.peer == rank:
            continue
        answers = scene.view(their.peer).progress
        answered = answers.recvs if their.op == "send" else answers.sends
        if answered.get((their.group, other, their.tag), 0) <= their.seq:
            yield their, their.peer


def _end_named_by(call: Call) -> str:
    """Return the name of the argument that names the other rank."""
    return "dst" if call.op == "send" else "src"


def other_count(scene: Scene) -> str | None:
    """Explain messages that one of two ranks counts more of than the other, after earlier ones did match.

    Those to or from a rank that is over come first, and then those of a rank in a collective: others may
    only wait because of them.
    """
    blocked = scene.deadlock.blocked
    in_messages = {rank for rank, call in blocked.items() if call.is_point_to_point}
    for rank, call in sorted(
        blocked.items(), key=lambda each: (each[1].peer in blocked, each[1].peer in in_messages)
    ):
        if not call.is_point_to_point or call.peer is None or not call.seq:
            continue
        their = blocked.get(call.peer)
        if their is not None and stack(their) == stack(call) and their.seq == call.seq:
            continue  # all are at the same line, in the same iteration: it is no matter of counting
        way, other = ("from", "sent") if call.op == "recv" else ("to", "received")
        over = f", and {how}" if (how := scene.view(call.peer).ended) else ""
        if their is not None:
            over = f", and itself waits in {their.op} ({scene.at(their.file, their.line)})"
        return (
            f"Rank {rank} waits in its {_ordinal(call.seq + 1)} {call.op} {way} rank {call.peer}, which has "
            f"{other} only {_messages(call.seq)}{over}.\nBoth sides must make the same number of "
            "calls, in the same order:\ncompare how often their loops run (microbatches, steps), and "
            "what each does next."
        )
    return None


def messages_that_take_turns(scene: Scene) -> str | None:
    """Explain a cycle of an isend or irecv on each rank of NCCL, behind which the other side stands."""
    cycle = cycle_of(scene)
    if not cycle or not all(_holds_up_others(scene, rank) for rank in cycle):
        return None
    if len({_is_answered(scene, rank) for rank in cycle}) > 1:  # then one of them lacks its other side
        return None
    return (
        f"A cycle ({path_of(cycle)}): on NCCL the messages of a rank take turns, isend and irecv, too, and "
        "each of these\nwaits for one that stands behind another. Give those of a rank to "
        "dist.batch_isend_irecv, which starts\nthem all at once."
    )


def _is_answered(scene: Scene, rank: int) -> bool:
    """Tell whether the other side of the message that this rank waits in is issued."""
    call = scene.deadlock.blocked[rank]
    return call.peer is not None and any(
        is_other_side(rank, call, their) for their in scene.view(call.peer).progress.recent
    )


def _holds_up_others(scene: Scene, rank: int) -> bool:
    """Tell whether this rank waits in a message that would not keep it from the next one on Gloo."""
    call = scene.deadlock.blocked[rank]
    return scene.view(rank).progress.launches and call.is_point_to_point and call.asynchronous


def cycle_of_one_kind(scene: Scene) -> str | None:
    """Explain a cycle in which all send first, or all receive first."""
    blocked = scene.deadlock.blocked
    cycle = cycle_of(scene)
    kinds = {blocked[rank].op for rank in cycle}
    if len(cycle) < 2 or len(kinds) > 1 or not kinds <= {"send", "recv"}:
        return None
    sends, asynchronous = kinds == {"send"}, all(blocked[rank].asynchronous for rank in cycle)
    are_level = sends or _are_level(scene, cycle)
    if (asynchronous or not are_level) and len({blocked[rank].seq for rank in cycle}) > 1:
        return None  # they have exchanged messages before, and count them differently
    name = f"{'send/send' if sends else 'recv/recv'} cycle ({path_of(cycle)})"
    if asynchronous:
        if another := _issued_for_another(scene, cycle):
            return f"A {name}: {another}"
        own, awaited = ("isend", "irecv") if sends else ("irecv", "isend")
        return (
            f"A {name}: each of these ranks waits for an {awaited} that the next one has not issued.\n"
            f"Issue as many {awaited}s as {own}s, and all before the first wait."
        )
    why = "a blocking send waits until its receiver asks" if sends else "all receive first, so no rank sends"
    nonblocking = "isend" if sends else "irecv"
    return f"A {name}: {why}.\nUse {nonblocking} (or batch_isend_irecv), or {_order(cycle, sends)}."


def _are_level(scene: Scene, ranks: Sequence[int]) -> bool:
    """Tell whether these ranks wait at one place of the code, where they have made equally many calls."""
    lines = {stack(scene.deadlock.blocked[rank]) for rank in ranks}
    passes = {tuple(scene.passes(rank, line) for each in lines for line in each) for rank in ranks}
    return len(lines) == len(passes) == 1


def _issued_for_another(scene: Scene, cycle: Sequence[int]) -> str | None:
    """Explain the other side of a message that names a rank that does not answer it."""
    for rank in cycle:
        call = scene.deadlock.blocked[rank]
        if call.peer is None:
            continue
        for their, third in _for_another(scene, rank, call, call.peer):
            mine, other = (
                ("sends to", "receives from") if call.op == "send" else ("receives from", "sends to")
            )
            return (
                f"rank {rank} {mine} rank {call.peer}, which {other} rank {third}\n"
                f"({scene.at(their.file, their.line)}). Check the argument {_end_named_by(their)} there."
            )
    return None


def _order(cycle: Sequence[int], sends: bool) -> str:
    """Name an order of blocking calls that breaks the cycle, whichever ranks are in it."""
    if len(cycle) == 2:
        return "order by rank: the lower rank of each pair sends first, the higher one receives first"
    first, then = ("receives", "sends") if sends else ("sends", "receives")
    return f"let one rank break the cycle: rank {min(cycle)} {first} before it {then}"


def cycle_of(scene: Scene) -> list[int]:
    """Return ranks of which each waits for the next and the last for the first; empty if there are none."""
    deadlock = scene.deadlock
    path: list[int] = []
    rank: int | None = next(iter(deadlock.blocked))
    while rank is not None and rank not in path:
        path.append(rank)
        rank = next((q for q in deadlock.missing[rank] if q in deadlock.blocked), None)
    return path[path.index(rank) :] if rank is not None else []


def path_of(cycle: Sequence[int]) -> str:
    """Write a cycle out, from its first rank back to it."""
    return " → ".join(map(str, [*cycle, cycle[0]]))


def without_match(scene: Scene) -> str | None:
    """Say that a message waits, where the reports do not show why."""
    waiting = {rank: call for rank, call in scene.deadlock.blocked.items() if call.is_point_to_point}
    if not waiting:
        return None
    # one for a rank that waits in a message itself may only wait because of that one
    rank, call = min(waiting.items(), key=lambda each: each[1].peer is None or each[1].peer in waiting)
    general = "Every send needs a recv, and every recv a send: same pair of ranks, same tag, same order."
    if call.peer is not None and (how := scene.view(call.peer).ended):
        name = {"send": "recv from", "recv": "send to"}[call.op]
        return f"Rank {call.peer} {how} without a {name} rank {rank}. {general}"
    if call.peer is None:
        line = stack(call)[-1]
        count = _ordinal(scene.passes(rank, line))
        return (
            f"Rank {rank} waits in its {count} recv on {scene.at(*line[:2])}, but no message "
            f"for it is left.\n{general}"
        )
    if call.peer not in scene.deadlock.blocked:
        return general
    their = scene.deadlock.blocked[call.peer]
    name = {"send": "recv", "recv": "send"}[call.op]
    if their.is_point_to_point and their.peer == rank:
        return general
    return (
        f"Rank {rank}'s {call.op} waits for a {name} on rank {call.peer}, but that one is stuck "
        f"in {their.op} ({scene.at(their.file, their.line)}).\n{general}"
    )


def _messages(count: int) -> str:
    return "one message" if count == 1 else f"{count} messages"


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"
