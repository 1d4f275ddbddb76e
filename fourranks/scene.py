"""A proven deadlock with the code that led there: what `mistakes` are found in, and how lines are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .protocol.calls import Call
from .protocol.places import Line, Place
from .source import Block, Source
from .watch import Deadlock, End, Ended, RankView


@dataclass(frozen=True)
class Scene:
    """All that is known of ranks that wait forever.

    Attributes:
        deadlock: the proof.
        places: the lines of calls, by (file, line).
        source: the code around them.
    """

    deadlock: Deadlock
    places: Mapping[tuple[str, int], Place]
    source: Source
    held_up: Mapping[int, Call] = field(default_factory=dict)  # calls that only wait for ranks of this scene

    @cached_property
    def calls(self) -> dict[int, Call]:
        """The call of each rank that is part of the proof, by rank."""
        return self.deadlock.conflicts | self.deadlock.blocked

    @cached_property
    def waits(self) -> dict[int, Call]:
        """Those of these calls that ranks still wait in."""
        blocked = self.deadlock.blocked
        return {rank: call for rank, call in self.calls.items() if rank in blocked or call.end is None}

    def view(self, rank: int) -> RankView:
        return self.deadlock.views[rank]

    def passes(self, rank: int, line: Line) -> int:
        """Count the rank's calls from this line, or from functions called there, in this cell."""
        return self.view(rank).progress.passes.get(line[:2], 0)

    def surely_runs(self, rank: int, line: Line) -> bool:
        """Tell whether the rank, if it has begun the function of this line, has come to the line as well."""
        has_finished = self.view(rank).ended == Ended(End.FINISHED)
        exits, blocks = self.source.exits(*line[:2]), self.blocks(line)
        no_way_around = all(way.line > line.line for way in exits)
        return has_finished and no_way_around and all(self.surely_takes(rank, block) for block in blocks)

    def surely_takes(self, rank: int, block: Block) -> bool:
        """Tell whether this is a branch that the rank takes whenever it comes to it."""
        return block.is_main_part or bool(block.is_taken_by(rank, len(self.deadlock.views)))

    def blocks(self, line: Line) -> tuple[Block, ...]:
        """Return the loops and branches around a line, innermost first."""
        return self.source.blocks(*line[:2], self._called.get(line[:2], frozenset()))

    @cached_property
    def _called(self) -> dict[tuple[str, int], frozenset[str]]:
        """The functions that are known to have been called on each line, by (file, line)."""
        found: dict[tuple[str, int], set[str]] = {}
        recent = (call for view in self.deadlock.views.values() for call in view.progress.recent)
        for call in (*self.calls.values(), *recent):
            lines = stack(call)
            names = (*(line.function for line in lines[1:]), call.name)
            for line, name in zip(lines, names, strict=True):
                found.setdefault(line[:2], set()).add(name)
        return {line: frozenset(names) for line, names in found.items()}

    def place(self, call: Call) -> str:
        """Name the line of a call, the line that led there, and what lies between it and the call."""
        text = str(self._place(call.file, call.line))
        if call.through:
            text += f", through {call.through}"
        file, line, _ = stack(call)[0]
        if (file, line) != (call.file, call.line):
            by = f"line {line}" if file == call.file else self._place(file, line).label
            text += f", called from {by}"
        return text

    def at(self, file: str, line: int) -> str:
        """Name a line: by its number alone where all that is shown is in the same file."""
        if {call.file for call in [*self.calls.values(), *self.held_up.values()]} == {file}:
            return f"line {line}"
        return self._place(file, 0).label.replace("line 0", f"line {line}")

    def _place(self, file: str, line: int) -> Place:
        if found := self.places.get((file, line)):
            return found
        known = next((place for (other, _), place in self.places.items() if other == file), None)
        label = known.label.rpartition(", line ")[0] if known is not None else ""
        return Place(f"{label}, line {line}" if label else f"line {line}")


def stack(call: Call) -> tuple[Line, ...]:
    """Return the reader's lines that led to a call, the outermost first."""
    return (*reversed(call.callers), call.at)
