"""Mistakes of programs that communicate from several threads of a rank."""

from __future__ import annotations

from ..naming import name_ranks
from ..protocol.calls import Call
from ..scene import Scene


def a_thread_raised(scene: Scene) -> str | None:
    """Explain a thread that has ended with an exception, on a rank that is awaited or in another call."""
    blocked = scene.deadlock.blocked
    for rank, call in blocked.items():
        for other in _without_it(scene, rank, call):
            if raised := scene.view(other).progress.raised:
                waiting = [each for each, its in blocked.items() if other in _without_it(scene, each, its)]
                return (
                    f"A thread of rank {other} ended with {raised[-1]} (its traceback is above). If that\n"
                    f"thread was to make the {call.name} that {name_ranks(waiting)} "
                    f"{'wait' if waiting[1:] else 'waits'} for, fix the exception first."
                )
    return None


def _without_it(scene: Scene, rank: int, call: Call) -> list[int]:
    """Return the ranks that have not made this call of `rank`: awaited ones, and those in another call."""
    missing = [*scene.deadlock.missing[rank]]
    if call.is_point_to_point or not scene.deadlock.conflicts:
        return missing
    return missing + [other for other, their in scene.calls.items() if not call.agrees_with(their)]


def threads_share_a_group(scene: Scene) -> str | None:
    """Explain two threads in collectives of one group, which another rank makes in another order."""
    for rank in scene.calls if scene.deadlock.conflicts else ():
        standing = [call for call in scene.view(rank).progress.waits if _stands_in(call)]
        for first, other in ((standing[0], other) for other in standing[1:]):
            if (other.group, other.ranks) == (first.group, first.ranks):
                lines = " and ".join(scene.at(call.file, call.line) for call in (first, other))
                return (
                    f"Two threads of rank {rank} use the same group ({lines}), so their calls may run in a\n"
                    "different order on each rank. Give each thread a group of its own: "
                    "dist.new_group()."
                )
    return None


def _stands_in(call: Call) -> bool:
    """Tell whether a thread stands still in this collective: no thread may wait for an asynchronous one."""
    return not (call.is_point_to_point or call.waits_for_key or call.asynchronous)
