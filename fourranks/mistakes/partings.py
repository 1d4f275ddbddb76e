"""Finds where the code of two ranks went apart: one made a call there that the other did not make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, product

from ..protocol.calls import Call
from ..protocol.places import Line
from ..scene import Scene, stack
from ..source import Block


@dataclass(frozen=True)
class Parting:
    """A rank makes a call that another rank has not made.

    Attributes:
        rank: makes the call.
        call: the call.
        line: the line of it, or the line that called the function it is in, at which the ranks differ.
        other: the rank that has not made the call.
        their: the call of the other one instead; None if its cell is over.
        their_line: where, if that is in the same function as `line`.
        has_left: whether the other one is no longer in the function of `line`.
        is_past: whether both calls are over: the ranks went on, one call apart.
    """

    rank: int
    call: Call
    line: Line
    other: int
    their: Call | None = None
    their_line: Line | None = None
    has_left: bool = False
    is_past: bool = False


def partings(scene: Scene) -> Iterator[Parting]:
    """Yield each pair of ranks that are part of the proof, the earliest parting first.

    Of ranks that have done the same the first stands for all.
    """
    pairs = [*_pairs(scene)]
    for rank, other, call in pairs:
        if earlier := _earlier(scene, rank, other, call):
            yield from _both_ways(scene, rank, other, *earlier, is_past=True)
    for rank, other, call in pairs:
        their = scene.calls.get(other)
        if their is None:
            for line in _levels(scene, call, other):
                yield Parting(rank, call, line, other, has_left=True)
        elif stack(call) != stack(their):
            yield from _both_ways(scene, rank, other, call, their)


def _pairs(scene: Scene) -> Iterator[tuple[int, int, Call]]:
    """Ranks in a collective, each with every rank that contradicts it or that it waits for in vain."""
    kind, seen = _kinds(scene), set[tuple[int, int]]()
    for rank, call in scene.deadlock.blocked.items():
        if not call.is_point_to_point and not call.members:
            others = {*scene.deadlock.missing[rank], *scene.deadlock.conflicts} - {rank}
            for other in sorted(each for each in others if each in scene.calls or scene.view(each).ended):
                pair = kind[rank], kind[other]
                if pair not in seen:
                    seen.add(pair)
                    yield rank, other, call


def _kinds(scene: Scene) -> dict[int, int]:
    """Give the ranks that have made the same calls on the same lines the same number."""
    numbers: dict[object, int] = {}
    return {rank: numbers.setdefault(_done_by(scene, rank), len(numbers)) for rank in scene.deadlock.views}


def _done_by(scene: Scene, rank: int) -> object:
    view, now = scene.view(rank), scene.calls.get(rank)
    calls = [*view.progress.recent, *([now] if now is not None else [])]
    made = tuple((call.op, call.group, call.seq, call.peer, stack(call)) for call in calls)
    return view.ended, frozenset(view.progress.passes.items()), made, now is not None and now.ranks


def _both_ways(
    scene: Scene, rank: int, other: int, call: Call, their: Call, is_past: bool = False
) -> Iterator[Parting]:
    deeper = []  # where a rank went around a call somewhere inside: less likely than around the whole
    for made_by, mine, left_by, theirs in ((rank, call, other, their), (other, their, rank, call)):
        if mine.is_point_to_point or left_by not in mine.ranks:
            continue
        line, their_line = fork_of(mine, theirs)
        inside = stack(mine)[: len(stack(theirs))] == stack(theirs)  # of a function that theirs is not in
        inner = stack(mine)[stack(mine).index(line) + 1 :]
        by_rank = next(iter(_for_some_ranks(scene, left_by, mine, (line, *inner))), line)
        if by_rank != line and not is_past:
            yield Parting(made_by, mine, by_rank, left_by, theirs, has_left=True)
        yield Parting(made_by, mine, line, left_by, theirs, their_line, has_left=inside, is_past=is_past)
        if _has_passed(scene, left_by, theirs, made_by, mine):
            deeper += [
                Parting(made_by, mine, each, left_by, theirs, has_left=True, is_past=is_past)
                for each in reversed(inner)
            ]
    yield from deeper


def fork_of(call: Call, their: Call) -> tuple[Line, Line | None]:
    """Return the outermost lines at which two calls differ; the second only if it is in the same function."""
    for line, other in zip(stack(call), stack(their), strict=False):
        if line != other:
            return (line, other) if (line[0], line[2]) == (other[0], other[2]) else (line, None)
    return stack(call)[-1], None


def _levels(scene: Scene, call: Call, other: int) -> list[Line]:
    """Return the lines on the way to a call, as far as they may tell what a rank that is over did not do.

    One from which it has made no call at all: where the branch or loop around it speaks of ranks, or else the
    outermost that it may have left out. If it has made calls from all of them, all, the innermost first.
    """
    unreached = [*dropwhile(lambda line: scene.passes(other, line), stack(call))]
    if not unreached:
        return [*reversed(stack(call))]
    left_out = [*dropwhile(lambda line: scene.surely_runs(other, line), unreached)] or unreached
    return [next(iter(_for_some_ranks(scene, other, call, left_out)), left_out[0])]


def _for_some_ranks(scene: Scene, other: int, call: Call, lines: Sequence[Line]) -> list[Line]:
    """Return those of these lines that the other rank has not come to, and that stand on a branch by rank.

    For a call of some ranks only, such a branch may well be right, unless it is plain that this rank takes
    another one.
    """
    size = len(scene.deadlock.views)
    for_all = len(call.ranks) == size
    return [
        line
        for line in lines
        for block in scene.blocks(line)
        if block.kind == "branch" and block.names_the_rank and not scene.passes(other, line)
        if (taken := block.is_taken_by(other, size)) is False or (for_all and taken is None)
    ]


def _has_passed(scene: Scene, rank: int, call: Call, other: int, their: Call) -> bool:
    """Tell whether a rank is beyond the line of a function at which another waits, or a turn ahead."""
    line, now_at = fork_of(their, call)
    if now_at is None or not may_have_passed(scene, their, call):
        return False
    return line.line < now_at.line or scene.passes(rank, now_at) > scene.passes(other, now_at)


def may_have_passed(scene: Scene, call: Call, their: Call) -> bool:
    """Tell whether a rank that makes another call may have gone past this one, by the order of the code.

    It may not while it is in a loop in front of the call, unless a loop around both takes it there again.
    """
    if not loops_in_front(scene, call, their):
        return True
    line, their_line = fork_of(call, their)
    outside = stack(call)[: stack(call).index(line)]
    is_in_loop = any(block.kind == "loop" for each in outside for block in scene.blocks(each))
    return is_in_loop or (their_line is not None and bool(_loops(scene, line) & _loops(scene, their_line)))


def loops_in_front(scene: Scene, call: Call, their: Call) -> list[tuple[Line, Block]]:
    """Return the loops that a rank is in with its own call in front of another one, innermost first."""
    line, their_line = fork_of(call, their)
    if their_line is None or line.line < their_line.line:
        return []
    lines, around = stack(their), _loops(scene, line)
    return [
        (each, block)
        for each in reversed(lines[lines.index(their_line) :])
        for block in scene.blocks(each)
        if block.kind == "loop" and (each != their_line or block not in around)
    ]


def _loops(scene: Scene, line: Line) -> set[Block]:
    return {block for block in scene.blocks(line) if block.kind == "loop"}


def _earlier(scene: Scene, rank: int, other: int, call: Call) -> tuple[Call, Call] | None:
    """Return the first calls of the same group that met although they were made from different places.

    Two branches of one `if` may well make the two sides of a call, or each have a line that the other rank
    never comes to. It is a sign of a mistake where one rank has made both, and the ranks have not been in
    step since then.
    """
    ours, theirs = (_by_place(scene, each, call) for each in (rank, other))
    common = sorted(set(ours) & set(theirs))
    turns, their_turns = _turns(scene, rank, ours), _turns(scene, other, theirs)
    in_step = [seq for seq in common if turns[seq] == their_turns[seq]]
    for seq in (seq for seq in common if seq > max(in_step, default=-1)):
        mine, their = ours[seq], theirs[seq]
        if stack(mine) == stack(their) or not mine.agrees_with(their):
            continue
        line, their_line = fork_of(mine, their)
        crossed = scene.passes(other, line) or (their_line and scene.passes(rank, their_line))
        if their_line and crossed and not branches_of_one(scene, line, their_line):
            return mine, their
    return None


def _by_place(scene: Scene, rank: int, call: Call) -> dict[int, Call]:
    """Return a rank's last collectives in the group of a call, in this cell, by their place there."""
    return {
        recent.seq: recent
        for recent in scene.view(rank).progress.recent
        if not recent.is_point_to_point
        and (recent.group, recent.ranks) == (call.group, call.ranks)
        and scene.passes(rank, stack(recent)[-1])
    }


def _turns(scene: Scene, rank: int, calls: Mapping[int, Call]) -> dict[int, tuple[tuple[Line, ...], int]]:
    """Return where the rank made each of these calls, and as which of its calls from that line."""
    turns, later = {}, Counter[Line]()
    for seq in sorted(calls, reverse=True):
        lines = stack(calls[seq])
        turns[seq] = lines, scene.passes(rank, lines[-1]) - later[lines[-1]]
        later.update(set(lines))
    return turns


def branches_of_one(scene: Scene, line: Line, other: Line) -> tuple[Block, Block] | None:
    """Return the branches of the same `if` that two lines are in, if they are in different ones."""
    for block, their in product(scene.blocks(line), scene.blocks(other)):
        is_same = (block.line, block.text) == (their.line, their.text)
        if block.kind == their.kind == "branch" and block.begin == their.begin and not is_same:
            return block, their
    return None


def not_around(scene: Scene, parting: Parting) -> list[Block]:
    """Return the loops and branches around a call, innermost first, without those of the other rank."""
    blocks = scene.blocks(parting.line)
    if parting.has_left:
        return [*blocks]
    if parting.their_line is None:
        return []  # it is in another function: no telling
    around = {(block.line, block.text) for block in scene.blocks(parting.their_line)}
    return [block for block in blocks if (block.line, block.text) not in around]


def ways_around(scene: Scene, parting: Parting) -> list[tuple[Line, Block]]:
    """Return the loops and branches by which the other rank may have gone around a call, innermost first."""
    lines = stack(parting.call)
    fork, their_line = lines[0], None
    if parting.their is not None:
        fork, their_line = fork_of(parting.call, parting.their)
    around = [(parting.line, block) for block in not_around(scene, parting)]
    for line in reversed(lines[lines.index(fork) : lines.index(parting.line)]):
        has_left = line != fork or parting.their is None
        level = replace(parting, line=line, their_line=their_line, has_left=has_left)
        around += [(line, block) for block in not_around(scene, level)]
    return [
        (line, block)
        for line, block in around
        if block.kind == "loop" or (block.kind == "branch" and not scene.surely_takes(parting.other, block))
    ]


def sides(scene: Scene, parting: Parting) -> tuple[list[int], list[int]]:
    """Return the ranks that make the one call, and those that make the other; of past calls only the two."""
    if parting.is_past:
        return [parting.rank], [parting.other]
    position = {rank: stack(call) for rank, call in scene.calls.items()}
    ours, others = (
        sorted(rank for rank in position if position[rank] == position[each])
        for each in (parting.rank, parting.other)
    )
    return ours, others


def alike(scene: Scene, parting: Parting) -> list[int]:
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
