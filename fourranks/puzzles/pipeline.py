"""Pipelines: which rank does what in which order, simulated tick by tick. Pure logic, no drawing."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .rules import RuleBroken, bounded, items, listed, shown, whole

_WORD = re.compile(r"([FBW])(\d{1,4})(?:\.(\d{1,2}))?")
_KINDS = {"F": "forward", "B": "backward", "W": "weight gradients"}


class Task(NamedTuple):
    """A piece of work: forward, backward or weight gradients of one microbatch, in one chunk of a rank."""

    kind: str  # "F", "B" or "W"
    microbatch: int
    chunk: int = 0

    def name(self, chunks: int) -> str:
        """Return it as players write it: F3, or F3.1 where ranks have several chunks."""
        return f"{self.kind}{self.microbatch}" + (f".{self.chunk}" if chunks > 1 else "")


class TimedTask(NamedTuple):
    """A task with its time, in ticks."""

    task: Task
    start: int
    end: int


class Fault(NamedTuple):
    """The place where a schedule breaks a rule: at which rank, and at which tick."""

    rank: int
    tick: int
    message: str
    task: Task


@dataclass(frozen=True)
class Timetable:
    """The course of a schedule: every rank's tasks with their times, up to the fault if there is one."""

    rows: list[list[TimedTask]]
    fault: Fault | None = None

    @property
    def ticks(self) -> int:
        """Length of the whole step."""
        return max((slot.end for row in self.rows for slot in row), default=0)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's shape and times.

    Attributes:
        microbatches: of a step.
        stages: the rank of each stage, in the order of the model; a rank's stages are its chunks 0, 1, ...
        ticks: length of each kind of task; without "W" the backward includes the gradients of the weights.
        alive: for each rank, how many microbatches' activations it can keep, counted over its chunks.
        slow: stages that take so many times as long.
        wire: ticks of a message from rank to rank.
    """

    microbatches: int
    stages: tuple[int, ...]
    ticks: dict[str, int]
    alive: tuple[int, ...]
    slow: dict[int, int] = field(default_factory=dict)
    wire: int = 0

    @property
    def ranks(self) -> int:
        return max(self.stages) + 1

    @property
    def chunks(self) -> int:
        """How many stages a rank has."""
        return len(self.stages) // self.ranks

    @property
    def last_kind(self) -> str:
        """The kind of task after which a microbatch's activations are freed."""
        return "W" if "W" in self.ticks else "B"

    def stage(self, rank: int, chunk: int) -> int:
        """Return the stage that is a rank's chunk."""
        return [stage for stage, owner in enumerate(self.stages) if owner == rank][chunk]

    def length(self, task: Task, stage: int) -> int:
        """Return the ticks of a task."""
        return self.ticks[task.kind] * self.slow.get(stage, 1)

    def tasks(self) -> Iterator[Task]:
        """Yield what every rank has to do once each."""
        for kind in self.ticks:
            for microbatch in range(self.microbatches):
                for chunk in range(self.chunks):
                    yield Task(kind, microbatch, chunk)

    def needs(self, task: Task, stage: int) -> list[tuple[Task, int]]:
        """Return the tasks, with their stages, that must be over before one can begin."""
        if task.kind == "F":
            return [self._at("F", task, stage - 1)] if stage > 0 else []
        if task.kind == "W":
            return [self._at("B", task, stage)]
        later = [self._at("B", task, stage + 1)] if stage + 1 < len(self.stages) else []
        return [self._at("F", task, stage), *later]

    def _at(self, kind: str, task: Task, stage: int) -> tuple[Task, int]:
        rank = self.stages[stage]
        chunk = self.stages[:stage].count(rank)
        return Task(kind, task.microbatch, chunk), stage


def read_orders(moves: Any, shape: Pipeline) -> list[list[Task]]:
    """Read a player's schedule: a list of orders, one a rank, or a function that gives one for a rank.

    Raises:
        RuleBroken: it is no such thing; or a rank does not do each task once.
    """
    return bounded(lambda: [_order(order, rank, shape) for rank, order in enumerate(_orders(moves, shape))])


def _orders(moves: Any, shape: Pipeline) -> Iterable[Any]:
    if callable(moves):
        return [moves(rank) for rank in range(shape.ranks)]
    if isinstance(moves, str):
        raise RuleBroken(f"Give a list of {shape.ranks} orders, one for each rank, not one string for all.")
    orders = items(moves, shape.ranks, "The schedule")
    if len(orders) != shape.ranks:
        more = "more" if len(orders) > shape.ranks else str(len(orders))
        raise RuleBroken(
            f"There are {shape.ranks} ranks, so the schedule needs {shape.ranks} orders, not {more}."
        )
    return orders


def _order(order: Any, rank: int, shape: Pipeline) -> list[Task]:
    words = order.replace(",", " ").split() if isinstance(order, str) else order
    most = len(list(shape.tasks()))
    words = items(words, most, f"Rank {rank}'s order")
    if len(words) > most:
        raise RuleBroken(f"Rank {rank} has {most} tasks to do, and its order goes on after them.")
    return [_task(word, f"Rank {rank}, place {place}", shape) for place, word in enumerate(words)]


def _task(word: Any, where: str, shape: Pipeline) -> Task:
    task = _read_word(word)
    if task is None:
        example = '"F0.1" or ("F", 0, 1)' if shape.chunks > 1 else '"F0" or ("F", 0)'
        raise RuleBroken(f"{where}: {shown(word)} is no task. Write {example} for a forward of microbatch 0.")
    if task.kind not in shape.ticks:
        kinds = listed([f"{kind} ({_KINDS[kind]})" for kind in shape.ticks])
        raise RuleBroken(f"{where}: there is no {shown(task.kind)} on this board; its tasks are {kinds}.")
    if not 0 <= task.microbatch < shape.microbatches:
        raise RuleBroken(
            f"{where}: there is no microbatch {task.microbatch}; they are 0 to {shape.microbatches - 1}."
        )
    if not 0 <= task.chunk < shape.chunks:
        raise RuleBroken(f"{where}: there is no chunk {task.chunk}; a rank has {shape.chunks}.")
    return task


def _read_word(word: Any) -> Task | None:
    """Read F3, F3.1, ("F", 3) or ("F", 3, 1); None if it is something else."""
    if isinstance(word, str):
        found = _WORD.fullmatch(word.strip())
        return Task(found[1], int(found[2]), int(found[3] or 0)) if found else None
    if not isinstance(word, tuple | list) or len(word) not in (2, 3):
        return None
    microbatch, chunk = whole(word[1]), whole(word[2]) if len(word) == 3 else 0
    if not isinstance(word[0], str) or microbatch is None or chunk is None:
        return None
    return Task(word[0], microbatch, chunk)


def simulate(orders: Sequence[Sequence[Task]], shape: Pipeline) -> Timetable:
    """Let every rank do its tasks in their order, each as soon as what it needs is there.

    The run ends at the first fault: a task done twice, too many microbatches alive, ranks that wait for each
    other, or a task that no rank does.
    """
    left = [deque(order) for order in orders]
    rows: list[list[TimedTask]] = [[] for _ in orders]
    over: dict[tuple[Task, int], int] = {}
    while True:
        ready = [
            (start, rank)
            for rank in range(shape.ranks)
            if (start := _start(left[rank], rank, rows, over, shape)) is not None
        ]
        if not ready:
            break
        start, rank = min(ready)
        task = left[rank].popleft()
        stage = shape.stage(rank, task.chunk)
        if message := _refusal(task, rank, rows[rank], shape):
            return Timetable(rows, Fault(rank, start, message, task))
        end = start + shape.length(task, stage)
        rows[rank].append(TimedTask(task, start, end))
        over[task, stage] = end
    return Timetable(rows, _deadlock(left, rows, over, shape) or _unfinished(rows, shape))


def _start(
    left: deque[Task],
    rank: int,
    rows: list[list[TimedTask]],
    over: dict[tuple[Task, int], int],
    shape: Pipeline,
) -> int | None:
    """Return when a rank's next task can begin; None if it has none, or that is not known yet."""
    if not left:
        return None
    stage = shape.stage(rank, left[0].chunk)
    times = [rows[rank][-1].end if rows[rank] else 0]
    for need in shape.needs(left[0], stage):
        if need not in over:
            return None
        times.append(over[need] + (shape.wire if shape.stages[need[1]] != rank else 0))
    return max(times)


def alive(row: Sequence[TimedTask], shape: Pipeline) -> set[tuple[int, int]]:
    """Return what a rank keeps after some tasks: microbatches with their chunks."""
    kept = {(slot.task.microbatch, slot.task.chunk) for slot in row if slot.task.kind == "F"}
    return kept - {
        (slot.task.microbatch, slot.task.chunk) for slot in row if slot.task.kind == shape.last_kind
    }


def _refusal(task: Task, rank: int, row: Sequence[TimedTask], shape: Pipeline) -> str:
    """Say why a rank may not do this task now; "" if it may."""
    name = task.name(shape.chunks)
    if any(slot.task == task for slot in row):
        return f"Rank {rank} does {name} twice."
    kept = alive(row, shape)
    if task.kind == "F" and len(kept) >= shape.alive[rank]:
        names = listed([Task("F", *each).name(shape.chunks) for each in sorted(kept)])
        return (
            f"Rank {rank} starts {name} while it still keeps the activations of {names}. It has memory for "
            f"{shape.alive[rank]}: a {shape.last_kind} has to come first."
        )
    return ""


def _deadlock(
    left: list[deque[Task]], rows: list[list[TimedTask]], over: dict[tuple[Task, int], int], shape: Pipeline
) -> Fault | None:
    """Say which rank waits for what, if ranks have tasks that can never begin."""
    waiting = [rank for rank in range(shape.ranks) if left[rank]]
    if not waiting:
        return None
    told = []
    for rank in waiting:
        task = left[rank][0]
        needed = next(need for need in shape.needs(task, shape.stage(rank, task.chunk)) if need not in over)
        owner = shape.stages[needed[1]]
        told.append(
            f"rank {rank}'s {task.name(shape.chunks)} needs {needed[0].name(shape.chunks)} of rank {owner}"
        )
    rank = waiting[0]
    tick = max((row[-1].end for row in rows if row), default=0)
    return Fault(rank, tick, f"The ranks deadlock: {', '.join(told)}.", left[rank][0])


def _unfinished(rows: list[list[TimedTask]], shape: Pipeline) -> Fault | None:
    for rank, row in enumerate(rows):
        done = {slot.task for slot in row}
        for task in shape.tasks():
            if task not in done:
                end = row[-1].end if row else 0
                return Fault(rank, end, f"Rank {rank} never does {task.name(shape.chunks)}.", task)
    return None
