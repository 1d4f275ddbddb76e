"""Mistakes that show where the code of two ranks went apart: a skipped call, another order, a short loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..naming import describe, name_ranks, sentence_case
from ..protocol.calls import Call
from ..protocol.places import Line
from ..scene import Scene, stack
from ..source import Block, Exit
from .partings import Parting, branches_of_one, fork_of, loops_in_front, may_have_passed, partings

ANSWERS = {"send": "recv", "recv": "send"}  # the call of the other side of a message
BACKWARD = "the backward pass"  # as calls of autograd's own are named
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
_LEAVING = ("return", "raise", "exit")  # statements that leave a function
_SAME_ORDER = "All ranks of a group must call the\nsame collectives in the same order."
_DDP = "DistributedDataParallel"
_JOIN = "Join"  # lets ranks leave a loop at different times
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
    ours, others = _sides(scene, parting)
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
    ours, others = _sides(scene, parting)
    block, size = branches[0], len(scene.deadlock.views)
    return (
        f"{sentence_case(name_ranks(ours))} and {name_ranks(others)} took different branches of "
        f"`{block.statement}` ({scene.at(parting.line[0], block.line)}),\nwhich make different calls: "
        f"{describe(parting.call, size)} and {describe(parting.their, size)}. {_advice(block)}"
    )


def _branch_not_taken(scene: Scene, parting: Parting) -> str | None:
    """Explain a call that stands on a branch around which the other rank went."""
    made, theirs = (scene.passes(rank, parting.line) for rank in (parting.rank, parting.other))
    around = _not_around(scene, parting)
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
    if not block.names_the_rank and (left := _left_by_rank(scene, parting)):
        return left
    others = sentence_case(name_ranks(_alike(scene, parting)))
    text = f"the {parting.call.name} inside `{block.text}` ({scene.at(parting.line[0], block.line)})"
    if theirs and loop is not None and not block.names_the_rank:
        return (
            f"{others} made {_count(theirs)} with {text}, rank {parting.rank} {_count(made)}:\n"
            f"either the branch was taken less often there, or the loop `{loop.text}` "
            f"({scene.at(parting.line[0], loop.line)}) was left early.\n{_advice(block)}"
        )
    text = f"{others} skipped {text}{' at least once' if theirs else ''}"
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
    return f"{text}.\n{_advice(block)}"


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
        ranks = name_ranks(_sides(scene, parting)[0])
        return f"{ranks} left the loop `{block.text}` ({scene.at(line.file, block.line)}) early"
    return None


def _loop_left_early(scene: Scene, parting: Parting) -> str | None:
    """Explain a call in a loop that is over on the other rank, after fewer iterations."""
    made, theirs = (scene.passes(rank, parting.line) for rank in (parting.rank, parting.other))
    around = [
        block
        for block in _not_around(scene, parting)
        if block.kind != "branch" or not scene.surely_takes(parting.other, block)
    ]
    if theirs >= made or not around or around[0].kind not in ("loop", "try"):
        return None
    if parting.their is not None and parting.their.through.endswith(_JOIN):
        return None  # it may: its Join answers the calls that others still make there
    file, line, _ = parting.line
    others, block = _alike(scene, parting), around[0]
    if block.kind == "try":
        return (
            f"{sentence_case(name_ranks(others))} made {_count(theirs)} on {scene.at(file, line)}, "
            f"rank {parting.rank} {_count(made)}: an exception may have been\ncaught by the try around it "
            f"({scene.at(file, block.line)}), and the {parting.call.name} left out. The other ranks do not\n"
            "know of an exception that one rank catches: tell them, for instance by an all_reduce of a flag."
        )
    causes = _may_be_left(scene, parting)
    text = f"{sentence_case(name_ranks(others))} {_how_left(scene, parting, causes, made - theirs)}"
    if parting.call.through or _makes_several(scene, parting):
        text += f"rank {parting.rank} has made {_count(made)} there, {name_ranks(others)} {theirs}."
    else:
        text += f"rank {parting.rank} is in its {parting.call.name} number {made} there, "
        text += f"{name_ranks(others)} called {theirs}."
    if ways := _ways_out_of(scene, parting, causes):
        text += f" Look at {' and '.join(ways)}."
    if turned := _turned_before(scene, parting, block):
        return f"{text}\n{turned}"
    if ways:
        return text
    if len(causes) == 1 and block.text.startswith("while"):
        return f"{text} All ranks need the same number: make the condition equal on all of them."
    return f"{text} All ranks need the same number."


def _how_left(scene: Scene, parting: Parting, around: Sequence[tuple[Line, Block]], missed: int) -> str:
    """Say which of these loops and branches may be why a rank has missed calls, and how."""
    loops, branches = (
        dict.fromkeys(
            f"`{block.text}` ({scene.at(at.file, block.line)})" for at, block in around if block.kind == kind
        )
        for kind in ("loop", "branch")
    )
    left = f"left the loop {' or '.join(loops)}"
    took = f"took {' or '.join(branches)} less often"
    if parting.call.through:  # which may make several calls in one iteration
        kind = "as with no_sync()" if parting.call.through.endswith(BACKWARD) else "on another branch"
        less = f", {took}" if branches else ""
        return f"{left} early, skipped iterations{less} or\nmade fewer calls in one, {kind}: "
    if branches:
        return f"{left} early, skipped iterations or {took}:\n"
    if len(loops) > 1 or _makes_several(scene, parting):
        return f"{left} early, or skipped iterations:\n"
    times, them = ("one iteration", "it") if missed == 1 else (f"{missed} iterations", "them")
    return f"{left} {times} early, or skipped {them}:\n"


def _turned_before(scene: Scene, parting: Parting, loop: Block) -> str | None:
    """Say that the rank may as well have left out the other's call, behind this loop, by a `continue`."""
    if parting.their is None or parting.their_line is None:
        return None
    way = _continue_between(scene, parting.line, loop.end, parting.their_line)
    if way is None:
        return None
    file, their_at, _ = parting.their_line
    return (
        f"Or rank {parting.rank} did not come to the {parting.their.name} of {scene.at(file, their_at)}: "
        f"look at the continue in {scene.at(file, way.line)}."
    )


def _continue_between(scene: Scene, line: Line, end: int, later: Line) -> Exit | None:
    """Find a `continue` behind `end` by which a loop around two lines leaves out the later one."""
    exits = scene.source.exits(*later[:2])
    for way in scene.source.exits(*line[:2]):
        if way in exits and way.keyword == "continue" and end < way.line < later.line:
            return way
    return None


def _makes_several(scene: Scene, parting: Parting) -> bool:
    """Tell whether the line of a parting makes several calls each time, so that they count no iterations."""
    lines = stack(parting.call)
    inner = lines[lines.index(parting.line) + 1 :]
    if any(block.kind == "loop" for line in inner for block in scene.blocks(line)):
        return True
    calls = [*scene.view(parting.rank).progress.recent, parting.call]
    return len({(call.op, stack(call)) for call in calls if parting.line in stack(call)}) > 1


def _may_be_left(scene: Scene, parting: Parting) -> list[tuple[Line, Block]]:
    """Return the loops that the other rank may have left, and branches in them, innermost first.

    How often a rank went through an outer loop, its calls in an inner one do not tell.
    """
    lines = stack(parting.call)
    fork, their_line = lines[0], None
    if parting.their is not None:
        fork, their_line = fork_of(parting.call, parting.their)
    around = [(parting.line, block) for block in _not_around(scene, parting)]
    for line in reversed(lines[lines.index(fork) : lines.index(parting.line)]):
        has_left = line != fork or parting.their is None
        level = replace(parting, line=line, their_line=their_line, has_left=has_left)
        around += [(line, block) for block in _not_around(scene, level)]
    while around[-1][1].kind != "loop":  # a branch around all loops was taken once, for all their iterations
        around.pop()
    return [
        (line, block)
        for line, block in around
        if block.kind == "loop" or (block.kind == "branch" and not scene.surely_takes(parting.other, block))
    ]


def _ways_out_of(scene: Scene, parting: Parting, around: Sequence[tuple[Line, Block]]) -> list[str]:
    """Name the statements by which a rank may have left loops around a call, or one of their iterations."""
    loops = {line: block for line, block in around if block.kind == "loop"}  # the outermost of each function
    lines = stack(parting.call)
    outermost = min(map(lines.index, loops))
    found = []
    for line in reversed(lines[outermost:]):
        loop = loops.get(line)
        for way in scene.source.exits(line.file, line.line):
            is_inside = loop is not None and loop.line <= way.line <= loop.end
            is_left = is_inside and (way.line < line.line or way.keyword != "continue")
            is_before = line != lines[outermost] and way.line < line.line and way.keyword in _LEAVING
            if is_left or is_before:
                found.append(f"the {way.keyword} in {scene.at(line.file, way.line)}")
    return [*dict.fromkeys(found)]


def _left_by_rank(scene: Scene, parting: Parting) -> str | None:
    """Name a way out by rank of a function that the line of a parting calls, which may have been taken."""
    lines, size = stack(parting.call), len(scene.deadlock.views)
    for line in lines[lines.index(parting.line) + 1 :]:
        for way in reversed(_ways_out_before(scene, line)):
            blocks = scene.source.blocks(line.file, way.line)
            if any(
                block.names_the_rank and block.is_taken_by(parting.other, size) is not False
                for block in blocks
            ):
                return _never_came(scene, parting, line, way)
    return None


def _left_before(scene: Scene, parting: Parting) -> str | None:
    """Explain a call in a function that the other rank has left in front of it."""
    if parting.their is None or not parting.has_left or scene.passes(parting.other, parting.line):
        return None
    ways = _ways_out_before(scene, parting.line)
    return _never_came(scene, parting, parting.line, ways[-1]) if ways else None


def _continued_before(scene: Scene, parting: Parting) -> str | None:
    """Explain a call in front of which the other rank went on with the next turn of a loop."""
    if parting.their_line is None or parting.has_left:
        return None
    made, theirs = (scene.passes(rank, parting.their_line) for rank in (parting.rank, parting.other))
    way = _continue_between(scene, parting.their_line, parting.their_line.line, parting.line)
    return _never_came(scene, parting, parting.line, way) if way and theirs > made else None


def _never_came(scene: Scene, parting: Parting, line: Line, way: Exit) -> str:
    """Say that a rank has left a function, or a turn of a loop, in front of this line, at least once."""
    how_often = "at least once did not come" if scene.passes(parting.other, line) else "never came"
    return (
        f"{sentence_case(name_ranks(_alike(scene, parting)))} {how_often} to the {parting.call.name} on "
        f"{scene.at(line.file, line.line)}: look at the {way.keyword} in front of it "
        f"({scene.at(line.file, way.line)})."
    )


def _ways_out_before(scene: Scene, line: Line) -> list[Exit]:
    """List the statements in front of a line by which a rank may have left the function of that line."""
    exits = scene.source.exits(line.file, line.line)
    return [way for way in exits if way.line < line.line and way.keyword in _LEAVING]


_SIGNS = (
    _same_calls_in_another_order,
    _other_branch,
    _branch_not_taken,
    _loop_left_early,
    _left_before,
    _continued_before,
)


def _may_meet(parting: Parting) -> bool:
    """Whether the two calls are of one kind in one group, so that they may well be two sides of one."""
    mine, theirs = parting.call, parting.their
    return theirs is not None and mine.op == theirs.op and _group(mine) == _group(theirs)


def _meets_its_other_side(scene: Scene, parting: Parting) -> bool:
    line, other = parting.line, parting.their_line
    return other is not None and _may_meet(parting) and branches_of_one(scene, line, other) is not None


def _not_around(scene: Scene, parting: Parting) -> list[Block]:
    """Return the loops and branches around a call, innermost first, without those of the other rank."""
    blocks = scene.blocks(parting.line)
    if parting.has_left:
        return [*blocks]
    if parting.their_line is None:
        return []  # it is in another function: no telling
    around = {(block.line, block.text) for block in scene.blocks(parting.their_line)}
    return [block for block in blocks if (block.line, block.text) not in around]


def _sides(scene: Scene, parting: Parting) -> tuple[list[int], list[int]]:
    """Return the ranks that make the one call, and those that make the other; of past calls only the two."""
    if parting.is_past:
        return [parting.rank], [parting.other]
    position = {rank: stack(call) for rank, call in scene.calls.items()}
    ours, others = (
        sorted(rank for rank in position if position[rank] == position[each])
        for each in (parting.rank, parting.other)
    )
    return ours, others


def _alike(scene: Scene, parting: Parting) -> list[int]:
    """Return the ranks that have not made a call: the other one, and those in the same position."""
    passes = scene.passes(parting.other, parting.line)
    missing = scene.deadlock.missing.get(parting.rank) or parting.call.ranks
    return [
        rank
        for rank in parting.call.ranks
        if rank in missing
        and scene.passes(rank, parting.line) == passes
        and (parting.is_past or _position(scene, rank) == _position(scene, parting.other))
    ]


def _position(scene: Scene, rank: int) -> object:
    return stack(scene.calls[rank]) if rank in scene.calls else scene.view(rank).ended


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


def _count(calls: int) -> str:
    return "one call" if calls == 1 else f"{calls} calls"


def _group(call: Call) -> tuple[str, tuple[int, ...]]:
    return call.group, call.ranks


def _advice(block: Block) -> str:
    if block.names_the_rank:
        return "A collective needs every rank of its group: move it out of the branch."
    return (
        "A collective needs every rank of its group: make the condition equal on all\n"
        "ranks (broadcast it, or draw it from the same seed), or move the call out of the branch."
    )
