"""Whether any schedule of a pipeline ends within some ticks: all of them are tried, tick by tick.

Microbatches are alike, so it is enough to look at schedules that take them in their order, and a state is how
many tasks of each kind each rank has begun. A state is dropped when one rank's work alone no longer fits.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from fourranks.puzzles.pipeline import Pipeline, Task

Kind = tuple[str, int]  # of task, and the stage


class State(NamedTuple):
    """Of one rank: tasks begun of each of its kinds; the task at work; messages on the wire."""

    begun: tuple[int, ...]
    current: int  # index of its kind; -1 if the rank is free
    left: int  # ticks
    wire: tuple[tuple[int, int], ...]  # kinds whose latest task others do not see yet, with ticks left


def can_end_within(ticks: int, shape: Pipeline) -> bool:
    """Try every schedule."""
    return _Search(shape, ticks).succeeds()


class _Search:
    def __init__(self, shape: Pipeline, ticks: int) -> None:
        self.shape, self.ticks = shape, ticks
        self.kinds: list[list[Kind]] = [
            [(kind, shape.stage(rank, chunk)) for kind in shape.ticks for chunk in range(shape.chunks)]
            for rank in range(shape.ranks)
        ]
        self.place = {
            kind: (rank, index) for rank, kinds in enumerate(self.kinds) for index, kind in enumerate(kinds)
        }
        self.lengths = [[shape.length(Task(kind, 0), stage) for kind, stage in kinds] for kinds in self.kinds]
        self.round_trips = [self._round_trip(shape.stage(rank, 0)) for rank in range(shape.ranks)]
        self.needs = [[self._needs(kind, stage) for kind, stage in kinds] for kinds in self.kinds]
        self.tails = [[self._tail(kind, stage) for kind, stage in kinds] for kinds in self.kinds]

    def _needs(self, kind: str, stage: int) -> list[tuple[int, int]]:
        found = self.shape.needs(Task(kind, 0), stage)
        return [self.place[task.kind, where] for task, where in found]

    def _tail(self, kind: str, stage: int) -> int:
        """The ticks of what has to follow the last task of a kind on other ranks or this one."""
        if kind == "W":
            return 0
        if kind == "F":
            own = self.shape.length(Task("B", 0), stage)
            if stage + 1 < len(self.shape.stages):
                hop = self._wire(stage, stage + 1)
                return hop + self.shape.length(Task("F", 0), stage + 1) + self._tail("F", stage + 1)
            return own + self._tail("B", stage)
        after_w = self.shape.length(Task("W", 0), stage) if "W" in self.shape.ticks else 0
        if stage == 0:
            return after_w
        hop = self._wire(stage, stage - 1)
        return max(after_w, hop + self.shape.length(Task("B", 0), stage - 1) + self._tail("B", stage - 1))

    def _wire(self, stage: int, other: int) -> int:
        return self.shape.wire if self.shape.stages[stage] != self.shape.stages[other] else 0

    def _waves(self, rank: int, forwards: int) -> int:
        """The least ticks of microbatches that are still to begin: memory lets few begin at a time."""
        waves = -(-forwards // self.shape.alive[rank])
        return waves * self.round_trips[rank]

    def _round_trip(self, stage: int) -> int:
        """The ticks of a microbatch from the start of its forward until its memory is free again."""
        stages = range(stage, len(self.shape.stages))
        wires = 2 * sum(self._wire(each, each + 1) for each in stages[:-1])
        there_and_back = sum(self.shape.length(Task(kind, 0), each) for each in stages for kind in "FB")
        return (
            there_and_back
            + wires
            + (self.shape.length(Task("W", 0), stage) if "W" in self.shape.ticks else 0)
        )

    def succeeds(self) -> bool:
        states = {tuple(State((0,) * len(kinds), -1, 0, ()) for kinds in self.kinds)}
        for now in range(self.ticks):
            states = {after for state in states for after in self._steps(state, self.ticks - now)}
            if any(self._is_over(state) for state in states):
                return True
        return False

    def _is_over(self, state) -> bool:
        return all(min(one.begun) == self.shape.microbatches and one.current < 0 for one in state)

    def _steps(self, state, left: int):
        choices = [self._choices(state, rank) for rank in range(self.shape.ranks)]
        for chosen in product(*choices):
            after = tuple(
                self._tick(rank, one, pick)
                for rank, (one, pick) in enumerate(zip(state, chosen, strict=True))
            )
            if self._fits(after, left - 1):
                yield after

    def _choices(self, state, rank: int) -> list[int]:
        one = state[rank]
        if one.current >= 0:
            return [one.current]
        able = [index for index in range(len(one.begun)) if self._may(state, rank, index)]
        # A B or W of one tick may as well be done now as later: it delays nothing, and others need it.
        fills_a_pause = any(self.kinds[rank][i][0] != "F" and self.lengths[rank][i] == 1 for i in able)
        return able if fills_a_pause else [*able, -1]

    def _may(self, state, rank: int, index: int) -> bool:
        one, (kind, _) = state[rank], self.kinds[rank][index]
        number = one.begun[index]
        if number == self.shape.microbatches:
            return False
        if kind == "F" and self._alive(rank, one) >= self.shape.alive[rank]:
            return False
        return all(self._seen(state, where, rank) > number for where in self.needs[rank][index])

    def _alive(self, rank: int, one: State) -> int:
        sign = {"F": 1, self.shape.last_kind: -1}
        return sum(
            sign.get(kind, 0) * count for (kind, _), count in zip(self.kinds[rank], one.begun, strict=True)
        )

    def _seen(self, state, where: tuple[int, int], by: int) -> int:
        """How many tasks of a kind are over, as another rank knows."""
        rank, index = where
        one = state[rank]
        on_the_wire = sum(kind == index for kind, _ in one.wire) if rank != by else 0
        return one.begun[index] - (one.current == index) - on_the_wire

    def _tick(self, rank: int, one: State, pick: int) -> State:
        wire = tuple((kind, left - 1) for kind, left in one.wire if left > 1)
        if pick < 0:
            return State(one.begun, -1, 0, wire)
        begun, left = one.begun, one.left
        if one.current < 0:
            begun = tuple(count + (index == pick) for index, count in enumerate(begun))
            left = self.lengths[rank][pick]
        if left > 1:
            return State(begun, pick, left - 1, wire)
        return State(begun, -1, 0, (*wire, (pick, self.shape.wire)) if self.shape.wire else wire)

    def _fits(self, state, left: int) -> bool:
        m = self.shape.microbatches
        for rank, one in enumerate(state):
            work = one.left
            shortest = 0 if one.current < 0 else self.tails[rank][one.current]
            tails = [shortest] if one.current >= 0 else []
            for index, count in enumerate(one.begun):
                if count < m:
                    work += (m - count) * self.lengths[rank][index]
                    tails.append(self.tails[rank][index])
            if tails and work + min(tails) > left:
                return False
            if self.shape.chunks == 1 and self._waves(rank, m - one.begun[0]) > left:
                return False
        return True
