"""Tasks of a pipeline's ranks, and their times: the schedules that checks expect, and a simulation of any.

A schedule is the list of one rank's steps, `("F", microbatch)` or `("B", microbatch)`. A rank may hold
several stages (interleaved schedules): then a microbatch comes through it as often, in forward from the first
of them to the last, in backward the other way. Pure functions; called by the checks of exercise 07.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Step = tuple[str, int]
Task = tuple[str, int, int]  # kind, microbatch, stage of the whole pipeline


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """Do all forwards, then all backwards (1811.06965), in the order of the microbatches."""
    return _in_turns(range(num_microbatches), num_microbatches)


def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """Do as many forwards as stages are behind this one, then take turns (PipeDream-Flush, 2006.09503)."""
    return _in_turns(range(num_microbatches), num_stages - 1 - stage)


def interleaved(rank: int, num_ranks: int, num_microbatches: int, num_chunks: int) -> list[Step]:
    """Take as many microbatches as ranks through each stage of a rank in turn (Megatron-LM, 2104.04473)."""
    rounds = range(0, num_microbatches, num_ranks)
    order = [first + at for first in rounds for _ in range(num_chunks) for at in range(num_ranks)]
    return _in_turns(order, (num_chunks - 1) * num_ranks + 2 * (num_ranks - 1 - rank))


def _in_turns(microbatches: Sequence[int], warm_up: int) -> list[Step]:
    """Do so many forwards, one forward and one backward in turns, then the backwards that are left."""
    forwards = [("F", microbatch) for microbatch in microbatches]
    backwards = [("B", microbatch) for microbatch in microbatches]
    warm_up = min(warm_up, len(forwards))
    in_turns = [step for turn in zip(forwards[warm_up:], backwards, strict=False) for step in turn]
    return forwards[:warm_up] + in_turns + backwards[len(forwards) - warm_up :]


def in_words(num_microbatches: int) -> str:
    """Return so many microbatches, as a title has it."""
    return f"{num_microbatches} microbatch{'es' * (num_microbatches != 1)}"


def most_in_flight(schedule: Sequence[Step]) -> int:
    """Count the most microbatches between their forward and their backward at any time."""
    in_flight = most = 0
    for kind, _ in schedule:
        in_flight += 1 if kind == "F" else -1
        most = max(most, in_flight)
    return most


def tasks(schedule: Sequence[Step], rank: int, num_ranks: int) -> list[Task]:
    """Return the steps with their stages: the n-th forward of a microbatch is of the n-th stage."""
    num_chunks = Counter(microbatch for kind, microbatch in schedule if kind == "F")
    seen: Counter[Step] = Counter()
    found = []
    for kind, microbatch in schedule:
        turn = seen[kind, microbatch]
        chunk = turn if kind == "F" else num_chunks[microbatch] - 1 - turn
        found.append((kind, microbatch, chunk * num_ranks + rank))
        seen[kind, microbatch] += 1
    return found


class Stuck(Exception):
    """No rank can go on; the text says which step of which rank waits for what."""


def busy_and_total(
    schedules: Sequence[Sequence[Step]], forward: float, backward: float
) -> tuple[list[float], float]:
    """Return the seconds that each rank computes, and those from the first step to the end of the last.

    Messages take no time. `forward` and `backward` are those of one step.

    Raises:
        Stuck: when ranks wait for one another forever.
    """
    seconds = {"F": forward, "B": backward}
    waiting = [tasks(schedule, rank, len(schedules)) for rank, schedule in enumerate(schedules)]
    last_stage = max((task[2] for own in waiting for task in own), default=0)
    clocks = [0.0] * len(schedules)
    finished: dict[Task | None, float] = {None: 0.0}  # a task that needs nothing has it from the start
    while any(waiting):
        first = [(rank, own[0], _need(own[0], last_stage)) for rank, own in enumerate(waiting) if own]
        ready = [(rank, task, needed) for rank, task, needed in first if needed in finished]
        if not ready:
            _, task, needed = first[0]
            raise Stuck(f"{_name(task)} waits for {_name(needed)}")
        for rank, task, needed in ready:
            began = max(clocks[rank], finished[needed])
            clocks[rank] = finished[task] = began + seconds[task[0]]
            waiting[rank].pop(0)
    return [sum(seconds[kind] for kind, _ in own) for own in schedules], max(clocks)


def _need(task: Task, last_stage: int) -> Task | None:
    """Return what has to be finished before, besides the rank's own earlier steps."""
    kind, microbatch, stage = task
    if kind == "F":
        return ("F", microbatch, stage - 1) if stage else None
    return ("B", microbatch, stage + 1) if stage < last_stage else ("F", microbatch, stage)


def _name(task: Task | None) -> str:
    assert task is not None  # a task that needs nothing is ready
    kind, microbatch, stage = task
    return f"{kind}{microbatch} of stage {stage}"


def bubble_fraction(schedules: Sequence[Sequence[Step]], forward: float, backward: float) -> float:
    """Return the share of all ranks' time in which they have nothing to compute."""
    busy, total = busy_and_total(schedules, forward, backward)
    return 1 - sum(busy) / (len(schedules) * total)
