"""Mistakes of programs that communicate from several threads of a rank."""

from __future__ import annotations

from itertools import product

from ..naming import name_ranks
from ..protocol.calls import THREAD, Call
from ..scene import Scene


def a_thread_raised(scene: Scene) -> str | None:
    """Explain a thread that has ended with an exception, on a rank that is awaited or in another call."""
    for other in scene.deadlock.views:
        raised = scene.view(other).progress.raised
        if raised and (waiting := _waiting_for(scene, other)):
            return (
                f"A thread of rank {other} ended with {raised[-1]} (its traceback is above). If that\n"
                f"thread was to make the {scene.calls[waiting[0]].name} that {name_ranks(waiting)} "
                f"{'wait' if waiting[1:] else 'waits'} for, fix the exception first."
            )
    return None


def _waiting_for(scene: Scene, other: int) -> list[int]:
    """Return the ranks whose calls a rank has not made: they await it, or it is in another call."""
    deadlock, their = scene.deadlock, scene.calls.get(other)

    def contradict(call: Call) -> bool:
        if their is None or not deadlock.conflicts or call.is_point_to_point:
            return False
        return not call.agrees_with(their)

    return [
        rank for rank, call in deadlock.blocked.items() if other in deadlock.missing[rank] or contradict(call)
    ]


def threads_share_a_group(scene: Scene) -> str | None:
    """Explain two threads in collectives of one group, which another rank makes in another order."""
    if not scene.deadlock.conflicts:
        return None
    for rank in scene.calls:
        standing = [call for call in scene.view(rank).progress.waits if _stands_in(call)]
        for first, other in ((standing[0], other) for other in standing[1:]):
            if _in_one_group(first, other):
                return _sharing(scene, f"rank {rank}", first, other)
    return None


def a_thread_shares_a_group(scene: Scene) -> str | None:
    """Explain the same where each rank stands in one of the calls: where a thread was started tells of it."""
    calls = scene.calls.values()
    for first, other in product(calls, filter(_is_in_a_thread, calls)):
        if _in_one_group(first, other) and not _is_in_a_thread(first):
            return _sharing(scene, "a rank", first, other)
    return None


def _sharing(scene: Scene, whose: str, first: Call, other: Call) -> str:
    lines = " and ".join(scene.at(call.file, call.line) for call in (first, other))
    return (
        f"Two threads of {whose} use the same group ({lines}), so their calls may run in a\n"
        "different order on each rank. Give each thread a group of its own: dist.new_group()."
    )


def _in_one_group(call: Call, other: Call) -> bool:
    return (call.group, call.ranks) == (other.group, other.ranks)


def _is_in_a_thread(call: Call) -> bool:
    """Tell whether the call is named by the line that started its thread."""
    return call.through.startswith(THREAD)


def _stands_in(call: Call) -> bool:
    """Tell whether a thread stands still in this collective: no thread may wait for an asynchronous one."""
    return not (call.is_point_to_point or call.waits_for_key or call.asynchronous)
