"""All plans for a model on a cluster, the fastest that fit first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from .cluster import Cluster, PlanError
from .layout import RECOMPUTE, SCHEDULES, Plan
from .step import StepEstimate, estimate_step
from .transformer import Transformer

MICRO_BATCHES = (1, 2, 4, 8)
SHORTEST = 4096  # tokens of a sequence that are worth a context-parallel rank


class Choices(NamedTuple):
    """The choices that plans may differ in besides their axes.

    The defaults leave out what cannot win: GPipe takes the time of 1F1B and more memory, ZeRO-0 that of
    ZeRO-1, and selective recompute saves nothing where attention keeps its scores on the chip.
    """

    schedules: Sequence[str] = ("1f1b", "interleaved", "zero-bubble")
    stages: Sequence[int] = (1, 2, 3)
    recompute: Sequence[str] = ("none", "full")

    def check(self) -> None:
        """Raise a PlanError for what is no choice."""
        for given, known, what in (
            (self.schedules, SCHEDULES, "schedule"),
            (self.stages, range(4), "stage of ZeRO"),
            (self.recompute, RECOMPUTE, "recompute"),
        ):
            if not given or set(given) - set(known):
                told, some = ", ".join(map(str, given)), ", ".join(map(str, known))
                raise PlanError(f"there is no {what} {told!r}; choose of {some}")


ALL = Choices()
# What published runs chose from: those without a layout are predicted with the best plan of these.
USUAL = Choices(schedules=("1f1b", "interleaved"), stages=(1, 3))


class Candidate(NamedTuple):
    """A plan and what it costs."""

    plan: Plan
    estimate: StepEstimate


def candidates(model: Transformer, cluster: Cluster, batch: int, choices: Choices = ALL) -> list[Candidate]:
    """Estimate every plan: those that fit first, each part from the fastest to the slowest.

    Raises:
        PlanError: no plan cuts this batch over these GPUs.
    """
    found = [
        Candidate(plan, estimate_step(model, cluster, plan))
        for plan in all_plans(model, cluster, batch, choices)
    ]
    if not found:
        raise PlanError(
            f"no plan cuts {model.name} with a batch of {batch} sequences over {cluster.gpus} GPUs: "
            "give a --batch that divides by a larger part of their number"
        )
    return sorted(found, key=lambda each: (not each.estimate.fits, each.estimate.seconds))


def best_plan(model: Transformer, cluster: Cluster, batch: int | None = None, choices: Choices = ALL) -> Plan:
    """Return the plan that fits in memory and has the least predicted time.

    Raises:
        PlanError: none fits; it says what is too large in the one that comes closest.
    """
    found = candidates(model, cluster, batch or usual_batch(cluster), choices)
    if not found[0].estimate.fits:
        raise PlanError(f"no plan fits: {too_large(min(found, key=lambda each: each.estimate.memory.total))}")
    return found[0].plan


def usual_batch(cluster: Cluster) -> int:
    """Return the sequences of a step that a search takes when it is told none."""
    return 4 * cluster.gpus


def too_large(candidate: Candidate) -> str:
    """Say which part of the memory is too large for a rank."""
    memory, limit = candidate.estimate.memory, candidate.estimate.memory_limit
    largest = getattr(memory, memory.largest)
    return (
        f"{memory.total / 1e9:,.0f} GB a GPU, {largest / 1e9:,.0f} GB of them for {memory.largest}; "
        f"{limit / 1e9:,.0f} GB can be used"
    )


def all_plans(model: Transformer, cluster: Cluster, batch: int, choices: Choices = ALL) -> Iterator[Plan]:
    """Yield the plans that divide evenly."""
    choices.check()
    for mesh, micro_batch in product(meshes(model, cluster), MICRO_BATCHES):
        if batch % (mesh.data * micro_batch) == 0:
            yield from _variants(model, replace(mesh, micro_batch=micro_batch, batch=batch), choices)


def _variants(model: Transformer, plan: Plan, choices: Choices) -> Iterator[Plan]:
    """Yield the schedules, ZeRO stages and ways to recompute of one mesh."""
    stages = choices.stages if plan.data * plan.context > 1 else (0,)
    schedules = list(_schedules(model, plan, choices)) if plan.pipeline > 1 else [("1f1b", 1)]
    for (schedule, number), zero, recompute in product(schedules, stages, choices.recompute):
        # Without its scores, a layer keeps no more than selective recompute would leave.
        flash = recompute != "selective"
        yield replace(plan, schedule=schedule, chunks=number, zero=zero, recompute=recompute, flash=flash)


def _schedules(model: Transformer, plan: Plan, choices: Choices) -> Iterator[tuple[str, int]]:
    """Yield schedules with their chunks a rank; interleaved ones go through p microbatches at a time."""
    for schedule in choices.schedules:
        if schedule != "interleaved":
            yield schedule, 1
        elif plan.microbatches % plan.pipeline == 0:
            chunks = _divisors(model.layers // plan.pipeline)
            yield from ((schedule, number) for number in chunks if number > 1)


def meshes(model: Transformer, cluster: Cluster) -> Iterator[Plan]:
    """Yield plans of all sizes of the axes, with what training runs of today do anyway."""
    for tensor in (size for size in _divisors(cluster.gpus) if size <= cluster.gpus_per_node):
        if model.heads % tensor == 0:
            yield from _meshes_over_layers(model, cluster.gpus // tensor, tensor)


def _meshes_over_layers(model: Transformer, gpus: int, tensor: int) -> Iterator[Plan]:
    for pipeline in (size for size in _divisors(gpus) if not model.layers % size):
        left = gpus // pipeline
        contexts = [size for size in _divisors(left) if size == 1 or model.sequence // size >= SHORTEST]
        experts = [size for size in _divisors(left) if not model.experts % size]
        for context, expert in product(contexts, experts):
            yield Plan(
                data=left // context, tensor=tensor, pipeline=pipeline, context=context, expert=expert,
                sequence_parallel=tensor > 1, flash=True, overlap=True,
            )  # fmt: skip


def _divisors(number: int) -> list[int]:
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})
