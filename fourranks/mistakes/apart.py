"""Mistakes that show where the code of two ranks went apart: a skipped call, another branch or order."""

from __future__ import annotations

from dataclasses import replace

from ..naming import describe, name_ranks, sentence_case
from ..protocol.calls import Call
from ..scene import Scene, stack
from ..source import Block
from .partings import (
    Parting,
    alike,
    branches_of_one,
    loops_in_front,
    may_have_passed,
    not_around,
    partings,
    sides,
    ways_around,
)
from .short_loops import loop_left_early, may_be_left, turned_before
from .ways_out import continued_before, left_before, left_by_rank

ANSWERS = {"send": "recv", "recv": "send"}  # the call of the other side of a message
GROUPS_IN_ORDER = "Ranks that share several groups must use them in the same order."
_ALIASES = {
    "all_gather_into_tensor": "all_gather_single",
    "reduce_scatter_tensor": "reduce_scatter_single",
    "all_gather_object": "all_gather",
    "broadcast_object_list": "broadcast",
    "gather_object": "gather",
    "scatter_object_list": "scatter",
    "isend": "send",
    "irecv": "recv",
}
_SAME_ORDER = "All ranks of a group must call the\nsame collectives in the same order."
_DDP = "DistributedDataParallel"
_DDP_COMPARES = "all_gather"  # the models' parameters, when it is made; later it never calls this


def went_apart(scene: Scene) -> str | None:
    """Explain where the code shows that one rank made a call that another did not make.

    None that makes a group: `groups_disagree` knows more about those.
    """
    found = [parting for parting in partings(scene) if not parting.call.members]
    for past in (True, False):
        for sign in _SIGNS:
            for parting in found:
                if parting.is_past is past and (text := sign(scene, parting)):
                    return text
    return None


def _same_calls_in_another_order(scene: Scene, parting: Parting) -> str | None:
    if parting.their is None or parting.their_line is None:
        return None
    mine, theirs = parting.call, parting.their
    (file, line, _), their_at = parting.line, parting.their_line[1]
    behind = _calls_behind(scene, file, line, mine.op)
    their_behind = _calls_behind(scene, file, their_at, theirs.op)
    if any(at == line for _, at in their_behind) and not branches_of_one(
        scene, parting.line, parting.their_line
    ):
        return None  # the other rank has yet to come to this very line: it is behind, not in another order
    answer = ANSWERS.get(theirs.op, theirs.op)
    later, their_later = _line_of(answer, behind), _line_of(mine.op, their_behind)
    if later is None or their_later is None:
        return None
    if _comes_to(scene, parting, their_later, behind):
        return None  # it makes that call, too: one more than the other rank
    if mine.op == theirs.op:
        return None if _group(mine) == _group(theirs) else GROUPS_IN_ORDER
    ours, others = sides(scene, parting)
    rule = "Make these calls in the same order on all ranks."
    return (
        f"The same calls in a different order: {name_ranks(ours)} {_call(ours)} {mine.op} "
        f"({scene.at(file, line)}) before {answer} ({scene.at(file, later)}),\n"
        f"{name_ranks(others)} {_call(others)} {theirs.op} "
        f"({scene.at(file, their_at)}) before {mine.op} ({scene.at(file, their_later)}). "
        f"{rule if theirs.is_point_to_point else _SAME_ORDER}"
    )


def _comes_to(scene: Scene, parting: Parting, line: int, behind: list[tuple[str, int]]) -> bool:
    """Tell whether the rank of a parting goes on to a line of the calls behind its own, whatever happens."""
    around = scene.blocks(parting.line)
    return any(at == line for _, at in behind) and all(
        block in around or block.kind == "loop" or scene.surely_takes(parting.rank, block)
        for block in scene.source.blocks(parting.line.file, line)
    )


def _other_branch(scene: Scene, parting: Parting) -> str | None:
    if parting.their is None or parting.their_line is None or parting.their.is_point_to_point:
        return None
    branches = branches_of_one(scene, parting.line, parting.their_line)
    if branches is None or _may_meet(parting):
        return None
    ours, others = sides(scene, parting)
    block, size = branches[0], len(scene.deadlock.views)
    return (
        f"{sentence_case(name_ranks(ours))} and {name_ranks(others)} took different branches of "
        f"`{block.statement}` ({scene.at(parting.line[0], block.begin)}),\nwhich make different calls: "
        f"{describe(parting.call, size)} and {describe(parting.their, size)}. {_advice(block)}"
    )


def _branch_not_taken(scene: Scene, parting: Parting) -> str | None:
    """Explain a call that stands on a branch around which the other rank went."""
    made, theirs = (scene.passes(rank, parting.line) for rank in (parting.rank, parting.other))
    around = not_around(scene, parting)
    branches = [
        block for block in around if block.kind == "branch" and not scene.surely_takes(parting.other, block)
    ]
    if theirs >= made or not branches or _meets_its_other_side(scene, parting):
        return None
    block = next((each for each in branches if each.names_the_rank), branches[0])
    if not block.names_the_rank and not _may_have_passed(scene, parting):
        return None  # it has yet to come to the branch
    loop = next((each for each in around if each.kind == "loop"), None)
    if theirs and loop is not None and loop.line > block.line:
        return None  # it did take the branch, and left a loop on it
    if not block.names_the_rank and (left := left_by_rank(scene, parting)):
        return left
    if theirs and not block.names_the_rank and may_be_left(scene, parting):
        return None  # or it has left a loop early
    others = sentence_case(name_ranks(alike(scene, parting)))
    on_the_way = [] if theirs or block.names_the_rank else _branches_on_the_way(scene, parting)
    if len(on_the_way) > 1:
        *some, last = on_the_way
        text = f"{others} did not take one of the branches to the {parting.call.name}: "
        text += f"{', '.join(some)} or {last}"
    else:
        text = f"{others} skipped the {parting.call.name} inside `{block.text}` "
        text += f"({scene.at(parting.line[0], block.line)}){' at least once' if theirs else ''}"
    if not block.names_the_rank and (left := _left_in_front(scene, parting)):
        return f"{text}, or\n{left}.\nAll ranks must take the same branches, and go as often through a loop."
    if parting.is_past and parting.their is not None:
        text += (
            f":\nthe {parting.their.name} of {scene.at(parting.their.file, parting.their.line)} met it, and "
            "since then the ranks are one call apart"
        )
    if parting.call.through.endswith(_DDP):
        if parting.call.op == _DDP_COMPARES:
            return f"{text}.\n{_DDP} compares the ranks' models where it is made: make it on all ranks."
        return (
            f"{text}.\n{_DDP} communicates in its forward pass: on some ranks only, for instance to\n"
            "validate, call the model inside of it, model.module(...)."
        )
    text += f".\n{_advice(block)}"
    turned = None if block.names_the_rank else turned_before(scene, parting, block)
    return f"{text}\n{turned}" if turned else text


def _branches_on_the_way(scene: Scene, parting: Parting) -> list[str]:
    """Name the branches on the way to a call from which the other rank has made none, innermost first."""
    innermost = stack(parting.call)[-1]
    if innermost != parting.line:
        parting = replace(parting, line=innermost, their_line=None, has_left=True)
    return [
        f"`{block.text}` ({scene.at(line.file, block.line)})"
        for line, block in ways_around(scene, parting)
        if block.kind == "branch" and not scene.passes(parting.other, line)
    ]


def _may_have_passed(scene: Scene, parting: Parting) -> bool:
    return parting.is_past or parting.their is None or may_have_passed(scene, parting.call, parting.their)


def _left_in_front(scene: Scene, parting: Parting) -> str | None:
    """Say that ranks may have left a loop early in front of a call, while the other rank is still in it.

    That one may as well have gone around the call, and be a turn of an outer loop ahead: counts of calls do
    not tell.
    """
    if parting.is_past or parting.their is None:
        return None
    for line, block in loops_in_front(scene, parting.call, parting.their):
        ranks = name_ranks(sides(scene, parting)[0])
        return f"{ranks} left the loop `{block.text}` ({scene.at(line.file, block.line)}) early"
    return None


_SIGNS = (
    _same_calls_in_another_order,
    _other_branch,
    _branch_not_taken,
    loop_left_early,
    left_before,
    continued_before,
)


def _may_meet(parting: Parting) -> bool:
    """Whether the two calls are of one kind in one group, so that they may well be two sides of one."""
    mine, theirs = parting.call, parting.their
    return theirs is not None and mine.op == theirs.op and _group(mine) == _group(theirs)


def _meets_its_other_side(scene: Scene, parting: Parting) -> bool:
    line, other = parting.line, parting.their_line
    return other is not None and _may_meet(parting) and branches_of_one(scene, line, other) is not None


def _calls_behind(scene: Scene, file: str, line: int, op: str) -> list[tuple[str, int]]:
    """List names and lines of the calls behind the one of this line, which may be several."""
    calls = [(_ALIASES.get(name, name), at) for name, at in scene.source.calls_from(file, line)]
    on_the_line = [name for name, at in calls if at == line]
    made = on_the_line.index(op) if op in on_the_line else len(on_the_line) - 1
    return calls[made + 1 :]


def _line_of(op: str, calls: list[tuple[str, int]]) -> int | None:
    return next((line for name, line in calls if name == op), None)


def _call(ranks: list[int]) -> str:
    return "call" if len(ranks) > 1 else "calls"


def _group(call: Call) -> tuple[str, tuple[int, ...]]:
    return call.group, call.ranks


def _advice(block: Block) -> str:
    if block.names_the_rank:
        return "A collective needs every rank of its group: move it out of the branch."
    return (
        "A collective needs every rank of its group: make the condition equal on all\n"
        "ranks (broadcast it, or draw it from the same seed), or move the call out of the branch."
    )
