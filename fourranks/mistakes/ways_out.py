"""Mistakes by which a rank leaves a function, or a turn of a loop, in front of a call of the others."""

from __future__ import annotations

from ..naming import name_ranks, sentence_case
from ..protocol.places import Line
from ..scene import Scene, stack
from ..source import Exit
from .partings import Parting, alike

LEAVING = ("return", "raise", "exit")  # statements that leave a function


def left_by_rank(scene: Scene, parting: Parting) -> str | None:
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


def left_before(scene: Scene, parting: Parting) -> str | None:
    """Explain a call in a function that the other rank has left in front of it."""
    if parting.their is None or not parting.has_left or scene.passes(parting.other, parting.line):
        return None
    ways = _ways_out_before(scene, parting.line)
    return _never_came(scene, parting, parting.line, ways[-1]) if ways else None


def continued_before(scene: Scene, parting: Parting) -> str | None:
    """Explain a call in front of which the other rank went on with the next turn of a loop."""
    if parting.their_line is None or parting.has_left:
        return None
    made, theirs = (scene.passes(rank, parting.their_line) for rank in (parting.rank, parting.other))
    way = continue_between(scene, parting.their_line, parting.their_line.line, parting.line)
    return _never_came(scene, parting, parting.line, way) if way and theirs > made else None


def _never_came(scene: Scene, parting: Parting, line: Line, way: Exit) -> str:
    """Say that a rank has left a function, or a turn of a loop, in front of this line, at least once."""
    how_often = "at least once did not come" if scene.passes(parting.other, line) else "never came"
    return (
        f"{sentence_case(name_ranks(alike(scene, parting)))} {how_often} to the {parting.call.name} on "
        f"{scene.at(line.file, line.line)}: look at the {way.keyword} in front of it "
        f"({scene.at(line.file, way.line)})."
    )


def _ways_out_before(scene: Scene, line: Line) -> list[Exit]:
    """List the statements in front of a line by which a rank may have left the function of that line."""
    exits = scene.source.exits(line.file, line.line)
    return [way for way in exits if way.line < line.line and way.keyword in LEAVING]


def continue_between(scene: Scene, line: Line, end: int, later: Line) -> Exit | None:
    """Find a `continue` behind `end` by which a loop around two lines leaves out the later one."""
    exits = scene.source.exits(*later[:2])
    for way in scene.source.exits(*line[:2]):
        if way in exits and way.keyword == "continue" and end < way.line < later.line:
            return way
    return None
