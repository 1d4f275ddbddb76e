"""Mistakes around collectives and groups that show in what the ranks reported, without reading the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

from ..given_up import calls_given_up, has_timed_out
from ..naming import details, name_ranks, sentence_case
from ..protocol.calls import Call
from ..scene import Scene, stack
from ..watch import End, is_other_side
from .apart import ANSWERS, GROUPS_IN_ORDER, went_apart
from .messages import cycle_of, path_of
from .short_loops import BACKWARD

_SAME_ORDER = "All ranks of a group must call the same collectives in the same order."
_UNKNOWN = "An exception that one rank catches is unknown to the other ranks."


def given_up(scene: Scene) -> str | None:
    """Explain a call that has failed on some ranks because others never came to it."""
    deadlock = calls_given_up(scene.deadlock.views)
    if deadlock is None:
        return None
    ranks = [rank for rank in deadlock.blocked if rank in deadlock.failed]
    call = deadlock.failed[ranks[0]]
    late = name_ranks(deadlock.missing[ranks[0]])
    how = "ended at its timeout" if has_timed_out(call) else "failed"
    text = (
        f"On {name_ranks(ranks)} the {call.name} ({scene.at(call.file, call.line)}) {how}: {late} had not "
        "called it."
    )
    where = went_apart(replace(scene, deadlock=replace(deadlock, failed={})))
    return f"{text}\n{where}" if where else text


def failed_elsewhere(scene: Scene) -> str | None:
    """Explain a call that has ended with an error on some ranks while others are still inside."""
    failed = scene.deadlock.failed
    if not failed:
        return None
    call = next(iter(failed.values()))
    for rank, their in scene.deadlock.blocked.items():
        if not call.is_point_to_point and their.place_in_group == call.place_in_group and their.op != call.op:
            return (
                f"In place of the {call.name} that failed on {name_ranks([*failed])}, rank {rank} made "
                f"another call, {their.name}.\n{_SAME_ORDER}"
            )
    if any(call.broke_group for call in failed.values()):
        return (
            f"The error ended the call on {name_ranks([*failed])} and left the others inside. Gloo closes\n"
            "the connections of a group at its first error: even if it is caught, make the group again."
        )
    if not call.nbytes:  # a barrier may raise the error of the call before
        return (
            f"The error is of {name_ranks([*failed])} alone, and the others wait in the {call.name}. "
            f"{_UNKNOWN}"
        )
    return _refused([*failed], call)


def refused_elsewhere(scene: Scene) -> str | None:
    """Explain a call that was refused on a rank, which caught the error, while others wait in it."""
    refused_on = {
        rank: view.progress.refused for rank, view in scene.deadlock.views.items() if view.progress.refused
    }
    for rank, call in scene.calls.items():
        if any(_is_at_place_of(call, refused) for refused in refused_on.get(rank, ())):
            continue  # an earlier one, which all ranks were refused
        others = {*scene.deadlock.missing.get(rank, ()), *scene.calls} - {rank}
        for other in sorted(others & refused_on.keys()):
            for refused in refused_on[other]:
                if _is_side_of(rank, call, refused):
                    where = scene.at(refused.file, refused.line)
                    words = refused.error.rstrip(".")
                    return f"{_refused([other], refused)}\nThe error on rank {other} ({where}) was: {words}."
    return None


def _refused(ranks: list[int], call: Call) -> str:
    return (
        f"On {name_ranks(ranks)} torch refused this {call.name} for its arguments, and the others wait in "
        f"it: correct the arguments\nthere. {_UNKNOWN}"
    )


def _is_side_of(rank: int, call: Call, other: Call) -> bool:
    return is_other_side(rank, call, other) if call.is_point_to_point else _is_at_place_of(call, other)


def _is_at_place_of(call: Call, other: Call) -> bool:
    own, its = ((each.op, each.place_in_group, each.peer, each.tag) for each in (call, other))
    return own == its


def key_never_set(scene: Scene) -> str | None:
    """Explain a wait for a key of a store that no rank is left to set."""
    methods = {call.op for call in scene.deadlock.blocked.values() if call.waits_for_key}
    if not methods:
        return None
    if methods == {"store.queue_pop"}:
        return "No rank is left that could fill the queue: look for the `queue_push` that belongs to it."
    return "No rank is left that could set the key: look for the `set` or `add` that belongs to it."


def a_rank_raised(scene: Scene) -> str | None:
    """Point at a rank that raised an exception and is waited for: its traceback says more than any hint."""
    raised = {rank: end for rank, end in scene.deadlock.ended.items() if end.how is End.RAISED}
    if not raised:
        return None
    has_exited = {end.exception for end in raised.values()} == {"SystemExit"}
    what, then = "raised an exception (its traceback is above)", "Correct the exception first."
    if has_exited:
        what, then = "exited", "Have all ranks exit at the same place, or none."
    waiting = {r: c for r, c in scene.deadlock.blocked.items() if {*raised} & {*scene.deadlock.missing[r]}}
    name = _other_side(next(iter(waiting.values())))
    for_it = [rank for rank, call in waiting.items() if _other_side(call) == name]
    return (
        f"{sentence_case(name_ranks([*raised]))} {what}, so never came\n"
        f"to the {name} that {name_ranks(for_it)} {'wait' if len(for_it) > 1 else 'waits'} for. {then}"
    )


def _other_side(call: Call) -> str:
    return ANSWERS.get(call.op, call.name)


def a_rank_handles_an_exception(scene: Scene) -> str | None:
    """Explain a call to which only an exception leads, so that ranks that did not raise it make another."""
    handled = {rank: each for rank in sorted(scene.calls) if (each := scene.view(rank).progress.handled)}
    if not handled or len(handled) == len({*scene.calls, *scene.deadlock.ended}):
        return None
    rank, exception = next(iter(handled.items()))
    alike = [other for other, each in handled.items() if each == exception]
    return (
        f"{sentence_case(name_ranks(alike))} raised {exception.name} ({scene.at(*exception.at[:2])}), and "
        f"came to the {scene.calls[rank].name} by handling it: in an\n`except`, in a `finally` or at the end "
        f"of a `with`. Correct the exception first. {_UNKNOWN}"
    )


def groups_disagree(scene: Scene) -> str | None:
    """Explain a new_group that some ranks do not call, or call with other members."""
    ops = {call.op for call in scene.calls.values()}
    if not ops & {"new_group", "split_group"}:
        return None
    conflicts = scene.deadlock.conflicts
    rank, call = next(iter(scene.deadlock.blocked.items()))
    for other, their in conflicts.items():
        if their.members == call.members and call.part is not None and their.part is not None:
            return (
                "Torch puts the number of groups that a rank has into the name of the next one: rank "
                f"{rank} has {call.part[0]},\nrank {other} has {their.part[0]}. Have both make the same "
                "number of groups, also with use_local_synchronization."
            )
    if "new_group" not in ops or not (conflicts or _is_waited_for(scene, "new_group")):
        return None
    return went_apart(scene) or (
        "Every rank must call new_group, with the same members and in the same order, even the ranks\n"
        "that are not in the group."
    )


def _is_waited_for(scene: Scene, op: str) -> bool:
    """Tell whether some rank waits for one in this call, or one in this call for a rank that is over.

    If not, those in the call only wait for ranks that something else holds up.
    """
    deadlock = scene.deadlock
    inside = {rank for rank, call in deadlock.blocked.items() if call.op == op}
    return any(
        inside.intersection(missing) or (rank in inside and not deadlock.ended.keys().isdisjoint(missing))
        for rank, missing in deadlock.missing.items()
    )


def other_ranks_stay_away(scene: Scene) -> str | None:
    """Explain a cell that was not run on all ranks."""
    away = [rank for rank, end in scene.deadlock.ended.items() if end.how is End.AWAY]
    if not away:
        return None
    return (
        f"The cell ran without {name_ranks(away)}. Run it on all ranks, or communicate in a group of those\n"
        "that run it: dist.new_group, called by every rank."
    )


def details_disagree(scene: Scene) -> str | None:
    """Explain the same call made with another root, shape, dtype, ..."""
    calls = scene.calls
    if not scene.deadlock.conflicts or len({call.op for call in calls.values()}) > 1:
        return None
    rank = min(calls)
    op = calls[rank].name
    other = next((q for q in sorted(calls) if not calls[q].agrees_with(calls[rank])), None)
    if other is None:
        return _shares_disagree(calls)
    mine, theirs = details(calls[rank]), details(calls[other])
    names = [name for name in mine if mine[name] != theirs.get(name)]
    if names == ["src or dst"] and all(call.root == q for q, call in calls.items()):
        each = sentence_case(name_ranks(sorted(calls)))
        return (
            f"{each} each name themselves: the src or dst of {op} is one rank, and all ranks name the same."
        )
    objects = [q for q in (rank, other) if "_object" in scene.place(calls[q])]
    if len(objects) == 1:
        return (
            f"Rank {objects[0]} communicates objects, and other ranks tensors: all ranks must call the same "
            "function."
        )
    counts = " and ".join(str(part[0]) for q in (rank, other) if (part := calls[q].part) is not None)
    what = " and the ".join(names) or f"number of elements ({counts})"
    text = f"Rank {rank} and rank {other} disagree on the {what}: in one {op} all ranks must give the same."
    if _place(calls[rank]) != _place(calls[other]):
        return (
            f"{text}\nThey call it from different places: if these are right as they are, one of the ranks "
            "has skipped a call, or\nmakes its calls in another order."
        )
    loop = next(
        (block for line in stack(calls[rank]) for block in scene.blocks(line) if block.kind == "loop"), None
    )
    if loop is not None and {"shape", "src or dst"}.intersection(names):
        text += (
            f"\nIf these are right as they are, the ranks go through the loop `{loop.text}` "
            f"({scene.at(calls[rank].file, loop.line)}) in another order, or\none of them has skipped a turn."
        )
    return text


def _place(call: Call) -> object:
    """Return where a call is made: the reader's lines, and the line of a library behind them."""
    return stack(call), call.through


def _shares_disagree(calls: Mapping[int, Call]) -> str | None:
    """Name the first two ranks of an all-to-all of which one sends another share than the other expects."""
    for rank, other in permutations(sorted(calls), 2):
        call, their = calls[rank], calls[other]
        if not call.fits(rank, their, other) and call.gives(other) != their.takes(rank):
            return (
                f"Rank {rank} sends {call.gives(other):,} bytes to rank {other} in {call.name}, and rank "
                f"{other} expects {their.takes(rank):,} bytes from it. Compare the split sizes, or the lists "
                "of tensors, of these two ranks."
            )
    return None


def orders_disagree(scene: Scene) -> str | None:
    """Say that different calls met, where the code does not show why."""
    if not scene.deadlock.conflicts:
        return None
    calls = scene.calls.values()
    if len({stack(call) for call in calls}) > 1 or not all(call.through for call in calls):
        return _SAME_ORDER
    return (
        f"{_SAME_ORDER}\nThese ranks are on the same line: one of them is a call behind, or what it works on "
        "there is not as on the others,\n"
        "such as the placements of a tensor, or which parameters need gradients."
    )


def groups_in_other_order(scene: Scene) -> str | None:
    """Explain ranks that share several groups and each wait in another one of them."""
    blocked = scene.deadlock.blocked
    if any(call.is_point_to_point for call in blocked.values()):
        return None
    for rank, call in blocked.items():
        for other in set(scene.deadlock.missing[rank]) & set(blocked):
            their = blocked[other]
            is_another = (call.group, call.ranks) != (their.group, their.ranks)
            if is_another and {rank, other} <= {*call.ranks} & {*their.ranks}:
                in_a_loop = any(block.kind == "loop" for line in stack(call) for block in scene.blocks(line))
                if stack(call) == stack(their) and not in_a_loop:
                    return _in_another_group(scene, rank, call, other, their)
                return GROUPS_IN_ORDER
    return _cycle_through_groups(scene)


def _cycle_through_groups(scene: Scene) -> str | None:
    """Explain ranks that each wait in a group of their own for a rank that waits in the next one."""
    cycle = cycle_of(scene)
    groups = {(call.group, call.ranks) for rank in cycle if (call := scene.deadlock.blocked[rank])}
    if len(groups) < 2:
        return None
    return (
        f"A cycle through several groups ({path_of(cycle)}): each of these ranks waits for one that is in a "
        "call of another group.\nUse groups of different kinds, such as for tensor and data parallelism, in "
        "the same order on all ranks."
    )


def a_rank_is_missing(scene: Scene) -> str | None:
    """Explain a call that some ranks never made before they were over."""
    ended = scene.deadlock.ended
    if not ended:
        return None
    rank = next(rank for rank, missing in scene.deadlock.missing.items() if set(missing) & set(ended))
    call = scene.deadlock.blocked[rank]
    absent = [q for q in scene.deadlock.missing[rank] if q in ended]
    if call.through.endswith(BACKWARD):
        return _no_gradient(absent, call.op)
    levels = [line for line in stack(call) if not scene.passes(absent[0], line)]
    if not levels:
        return _as_often(scene, rank, absent)
    who = sentence_case(name_ranks(absent))
    for line in levels:
        if exits := [way for way in scene.source.exits(*line[:2]) if way.line < line[1]]:
            return (
                f"{who} never came to {scene.at(*line[:2])}: look at the {exits[-1].keyword} in front of it "
                f"({scene.at(line[0], exits[-1].line)})."
            )
    *by_way_of, (file, at, function) = levels
    inside = f" of {function}" if function.isidentifier() else ""
    way = f" by way of {scene.at(*by_way_of[0][:2])}" if by_way_of else ""
    return (
        f"{who} never came to the {call.name} on {scene.at(file, at)}{inside}{way}.\n"
        "A collective needs every rank of its group: look for an `if rank ...`, an early return or an\n"
        "exception that was caught in front of it."
    )


def _no_gradient(absent: list[int], op: str) -> str:
    return (
        f"{sentence_case(name_ranks(absent))} did not come to this {op} of gradients: no backward pass ran "
        "there,\nor it did not reach all parameters. If ranks use different parts of the model, give "
        "DistributedDataParallel\nfind_unused_parameters=True."
    )


def _as_often(scene: Scene, rank: int, absent: list[int]) -> str:
    """Explain a line that the others ran, too, but for another call or not as often."""
    call = scene.deadlock.blocked[rank]
    line = stack(call)[-1]
    other = absent[0]
    for their in reversed(scene.view(other).progress.recent):
        if stack(their)[-1] == line and (their.group, their.ranks) != (call.group, call.ranks):
            return _in_another_group(scene, rank, call, other, their)
    made, theirs = (scene.passes(q, line) for q in (rank, other))
    return (
        f"Rank {rank} is in its {call.name} number {made} on {scene.at(*line[:2])}, {name_ranks(absent)} "
        f"came there\n{_times(theirs)}. All ranks need the same number: look at what repeats it, "
        "such as a loop, a recursion or a hook."
    )


def _in_another_group(scene: Scene, rank: int, call: Call, other: int, their: Call) -> str:
    """Explain one line on which a rank communicates in another group than a member of its own."""
    line = scene.at(*stack(call)[-1][:2])
    if call.ranks == their.ranks:
        return (
            f"On {line} rank {rank} and rank {other} communicate in two groups of the same ranks: both must\n"
            "use one group there, and several groups in the same order."
        )
    return (
        f"On {line} rank {rank} communicates among {name_ranks(call.ranks)}, and rank {other}, which is one "
        f"of them,\ndid so among {name_ranks(their.ranks)}: both must use one group there."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
