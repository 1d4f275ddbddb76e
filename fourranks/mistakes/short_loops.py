"""Mistakes by which ranks go through a loop, or call in it, less often than others."""

from __future__ import annotations

from collections.abc import Sequence

from ..naming import name_ranks, sentence_case
from ..protocol.places import Line
from ..scene import Scene, stack
from ..source import Block
from .partings import Parting, alike, not_around, ways_around
from .ways_out import LEAVING, continue_between

BACKWARD = "the backward pass"  # as calls of autograd's own are named
_JOIN = "Join"  # lets ranks leave a loop at different times


def loop_left_early(scene: Scene, parting: Parting) -> str | None:
    """Explain a call in a loop that is over on the other rank, after fewer iterations."""
    made, theirs = (scene.passes(rank, parting.line) for rank in (parting.rank, parting.other))
    around = [
        block
        for block in not_around(scene, parting)
        if block.kind != "branch" or not scene.surely_takes(parting.other, block)
    ]
    if theirs >= made or not around or around[0].kind == "handler":
        return None
    if parting.their is not None and parting.their.through.endswith(_JOIN):
        return None  # it may: its Join answers the calls that others still make there
    others, block = alike(scene, parting), around[0]
    if block.kind == "try":
        return _left_out_by_try(scene, parting, block, made, theirs)
    if not (causes := may_be_left(scene, parting)):
        return None
    text = f"{sentence_case(name_ranks(others))} {_how_left(scene, parting, causes, made - theirs)}"
    if parting.call.through or _makes_several(scene, parting):
        text += f"rank {parting.rank} has made {counted_calls(made)} there, {name_ranks(others)} {theirs}."
    else:
        text += f"rank {parting.rank} is in its {parting.call.name} number {made} there, "
        text += f"{name_ranks(others)} called {theirs}."
    if ways := _ways_out_of(scene, parting, causes):
        text += f" Look at {' and '.join(ways)}."
    if turned := turned_before(scene, parting, block):
        return f"{text}\n{turned}"
    if ways:
        return text
    if len(causes) == 1 and block.text.startswith("while"):
        return f"{text} All ranks need the same number: make the condition equal on all of them."
    return f"{text} All ranks need the same number."


def _left_out_by_try(scene: Scene, parting: Parting, block: Block, made: int, theirs: int) -> str:
    file, line, _ = parting.line
    others = sentence_case(name_ranks(alike(scene, parting)))
    return (
        f"{others} made {counted_calls(theirs)} on {scene.at(file, line)}, rank {parting.rank} "
        f"{counted_calls(made)}: an exception may have been\ncaught by the try around it "
        f"({scene.at(file, block.line)}), and the {parting.call.name} left out. The other ranks do not\n"
        "know of an exception that one rank catches: tell them, for instance by an all_reduce of a flag."
    )


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
    if len(loops) > 1 or _makes_several(scene, parting) or (missed > 1 and _comes_again(scene, parting)):
        return f"{left} early, or skipped iterations:\n"
    times, them = ("one iteration", "it") if missed == 1 else (f"{missed} iterations", "them")
    return f"{left} {times} early, or skipped {them}:\n"


def turned_before(scene: Scene, parting: Parting, block: Block) -> str | None:
    """Say that the rank may as well have left out the other's call, behind this block, by a `continue`."""
    if parting.their is None or parting.their_line is None:
        return None
    way = continue_between(scene, parting.line, block.end, parting.their_line)
    if way is None:
        return None
    file, their_at, _ = parting.their_line
    return (
        f"Or rank {parting.rank} did not come to the {parting.their.name} of {scene.at(file, their_at)}: "
        f"look at the continue in {scene.at(file, way.line)}."
    )


def _makes_several(scene: Scene, parting: Parting) -> bool:
    """Tell whether the line of a parting makes several calls each time, so that they count no iterations."""
    lines = stack(parting.call)
    inner = lines[lines.index(parting.line) + 1 :]
    if any(block.kind == "loop" for line in inner for block in scene.blocks(line)):
        return True
    calls = [*scene.view(parting.rank).progress.recent, parting.call]
    return len({(call.op, stack(call)) for call in calls if parting.line in stack(call)}) > 1


def _comes_again(scene: Scene, parting: Parting) -> bool:
    """Tell whether there are loops inside of each other, so that ranks may leave the inner one repeatedly."""
    loops = [block for line in stack(parting.call) for block in scene.blocks(line) if block.kind == "loop"]
    return len(loops) > 1


def may_be_left(scene: Scene, parting: Parting) -> list[tuple[Line, Block]]:
    """Return the loops that the other rank may have left, and branches in them, innermost first.

    How often a rank went through an outer loop, its calls in an inner one do not tell.
    """
    around = ways_around(scene, parting)
    while around and around[-1][1].kind != "loop":  # a branch around all loops was taken once, for all turns
        around.pop()
    return around


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
            is_before = line != lines[outermost] and way.line < line.line and way.keyword in LEAVING
            if is_left or is_before:
                found.append(f"the {way.keyword} in {scene.at(line.file, way.line)}")
    return [*dict.fromkeys(found)]


def counted_calls(calls: int) -> str:
    """Return a number of calls in words."""
    return "one call" if calls == 1 else f"{calls} calls"
