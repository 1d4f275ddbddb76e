"""Pipeline schedules: the bubble as a number, and the order of each stage's work for a timeline."""

from __future__ import annotations

from typing import NamedTuple

from .layout import Plan


class Slot(NamedTuple):
    """One piece of a stage's work."""

    kind: str  # "F" or "B"
    microbatch: int


def bubble_slots(plan: Plan) -> float:
    """Return the idle time of a stage in units of one microbatch's forward and backward.

    (p - 1) for GPipe and 1F1B, divided by the chunks of an interleaved schedule. A split backward (ZB-H1,
    2401.10241) leaves forward + backward to the input - gradients of weights: one of three equal parts, and
    two of four where backward repeats forward.
    """
    idle = float(plan.pipeline - 1)
    if plan.schedule == "interleaved":
        return idle / plan.chunks
    if plan.schedule == "zero-bubble":
        return idle / (2 if plan.recompute == "full" else 3)
    return idle


def stage_order(plan: Plan, stage: int) -> list[Slot]:
    """Return the work of one stage in its order; interleaved and split schedules are drawn as 1F1B."""
    m = plan.microbatches
    warm = m if plan.schedule == "gpipe" else min(m, plan.pipeline - 1 - stage)
    order = [Slot("F", number) for number in range(warm)]
    for number in range(m):
        order += [Slot("F", warm + number)] if warm + number < m else []
        order.append(Slot("B", number))
    return order
