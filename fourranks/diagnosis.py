"""Puts a proven deadlock into words: which ranks wait where, and the mistake that most likely led there.

Pure text from what `watch` has proven and the ranks have reported. A hint is given only where the reports
show its sign; the first that applies, from the most to the least specific.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .mistakes import apart, collectives, messages, threads
from .naming import describe, name_ranks, sentence_case
from .protocol.calls import Call
from .scene import Scene
from .watch import Ended

_HINTS = (
    collectives.failed_elsewhere,
    collectives.given_up,
    collectives.a_rank_raised,
    collectives.refused_elsewhere,
    collectives.a_rank_handles_an_exception,
    threads.a_thread_raised,
    collectives.key_never_set,
    messages.too_small_a_buffer,
    collectives.groups_disagree,
    threads.threads_share_a_group,
    collectives.other_ranks_stay_away,
    apart.went_apart,
    threads.a_thread_shares_a_group,
    collectives.details_disagree,
    collectives.orders_disagree,
    messages.other_tag_or_peer,
    messages.messages_that_take_turns,
    messages.cycle_of_one_kind,
    messages.other_count,
    messages.without_match,
    collectives.groups_in_other_order,
    collectives.a_rank_is_missing,
)


def explain(scene: Scene) -> str:
    """Say which rank waits where for which other, and what to look for."""
    return "\n".join([*_waits(scene), "", hint(scene)])


def explain_given_up(scene: Scene) -> str:
    """Say why calls have failed that ranks gave up, and what became of those that never came to them."""
    failed = scene.deadlock.failed
    ended = {rank: how for rank, how in scene.deadlock.ended.items() if rank not in failed}
    return "\n".join([*_ends(ended), "", collectives.given_up(scene) or ""])


def hint(scene: Scene) -> str:
    """Name the likely mistake, and how to correct it."""
    scene = _without_those_held_up(scene)
    for find in _HINTS:
        if found := find(scene):
            return found
    return "Each of these ranks waits for another of them. Check the order in which they communicate."


def _without_those_held_up(scene: Scene) -> Scene:
    """Leave out ranks that wait for others in vain, where these are stuck among themselves already."""
    deadlock = scene.deadlock
    if deadlock.conflicts or deadlock.failed:
        return scene
    needed = {rank: _all_needed(rank, deadlock.missing) for rank in deadlock.blocked}
    knot = min(needed.values(), key=len)
    if not knot < needed.keys() or not knot or any(needed[rank] != knot for rank in knot):
        return scene
    blocked = {rank: call for rank, call in deadlock.blocked.items() if rank in knot}
    held_up = {rank: call for rank, call in deadlock.blocked.items() if rank not in knot}
    return replace(scene, deadlock=replace(deadlock, blocked=blocked), held_up=held_up)


def _all_needed(rank: int, missing: Mapping[int, Sequence[int]]) -> set[int]:
    """Return the ranks for which a rank waits, for which these wait, and so on."""
    found: set[int] = set()
    ahead = [rank]
    while ahead:
        new = {*missing.get(ahead.pop(), ())} - found
        found |= new
        ahead += new
    return found


def _waits(scene: Scene) -> Iterator[str]:
    deadlock, calls, size = scene.deadlock, scene.calls, len(scene.deadlock.views)
    in_detail = bool(deadlock.conflicts) and (
        len({call.op for call in calls.values()}) == 1
        or any(call.is_point_to_point for call in calls.values())
    )
    for ranks in _alike(scene, calls, in_detail):
        call = calls[ranks[0]]
        missing = {other for rank in ranks for other in deadlock.missing.get(rank, ())} - set(ranks)
        what = f"{describe(call, size, in_detail)} ({scene.place(call)})"
        named = call.peer is not None or deadlock.conflicts
        whom = f", for {name_ranks(sorted(missing))}" if missing and not named else ""
        verb = "called" if ranks[0] not in scene.waits else "wait in" if len(ranks) > 1 else "waits in"
        yield f"  {sentence_case(name_ranks(ranks))} {verb} {what}{whom}."
    for ranks in _alike(scene, deadlock.failed, in_detail=True):
        call = deadlock.failed[ranks[0]]
        how = "failed" if call.broke_group or not call.nbytes else "was refused"
        words = call.error.rstrip(".")
        yield f"  On {name_ranks(ranks)} the {call.name} {how} ({scene.place(call)}): {words}."
    yield from _ends(deadlock.ended)


def _ends(ended: Mapping[int, Ended]) -> Iterator[str]:
    for how in sorted(set(map(str, ended.values()))):
        ranks = [rank for rank, end in ended.items() if str(end) == how]
        yield f"  {sentence_case(name_ranks(ranks))} {how}."


def _alike(scene: Scene, calls: dict[int, Call], in_detail: bool) -> list[list[int]]:
    """Group the ranks that are in the same call on the same line, as far as that is shown."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, call in sorted(calls.items()):
        key = describe(call, len(scene.deadlock.views), in_detail), scene.place(call)
        together.setdefault(key, []).append(rank)
    return list(together.values())
