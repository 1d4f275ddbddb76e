"""A plan's step as a `Trace`, so that the views and the Chrome export draw it as they draw a measured one.

One rank stands for each pipeline stage. Messages between stages and the closing all-reduce are its calls.
"""

from __future__ import annotations

from ..protocol.calls import Call, Record
from ..trace import Trace
from .layout import Plan
from .schedule import stage_order
from .step import StepEstimate

Moments = dict[tuple[str, int, int], tuple[float, float]]  # start, end by kind, stage and microbatch


def predicted_trace(plan: Plan, estimate: StepEstimate) -> Trace:
    """Return what the stages of a step would do, as if it had been traced; one rank a stage."""
    moments = _moments(plan, estimate)
    records = {stage: _record(plan, stage, moments, estimate.data) for stage in range(plan.pipeline)}
    return Trace(plan.pipeline, cells=[records])


def _moments(plan: Plan, estimate: StepEstimate) -> Moments:
    """Find when each piece of work runs: in its stage's order, and after what it needs from a neighbour."""
    seconds = {"F": estimate.forward, "B": estimate.backward}
    left = [stage_order(plan, stage) for stage in range(plan.pipeline)]
    free, found = [0.0] * plan.pipeline, Moments()
    while any(left):
        for stage, order in enumerate(left):
            while order and (start := _ready(order[0], stage, plan.pipeline, found)) is not None:
                kind, number = order.pop(0)
                begun = max(start, free[stage])
                free[stage] = begun + seconds[kind]
                found[kind, stage, number] = begun, free[stage]
    return found


def _ready(slot: tuple[str, int], stage: int, stages: int, found: Moments) -> float | None:
    """Return when what this work needs is there; None if that is not known yet."""
    kind, number = slot
    source = stage - 1 if kind == "F" else stage + 1
    if not 0 <= source < stages:
        needed = ("F", stage, number) if kind == "B" else None
        return 0.0 if needed is None else found[needed][1] if needed in found else None
    return found[kind, source, number][1] if (kind, source, number) in found else None


def _record(plan: Plan, stage: int, moments: Moments, data: float) -> Record:
    """Return one stage's calls; its gradients are reduced as soon as its own backward is over."""
    calls = [call for key in moments for call in _messages(key, stage, moments, plan.pipeline)]
    computed = max(end for (_, own, _), (_, end) in moments.items() if own == stage)
    if data:
        calls.append(Call("all_reduce", f"data {stage}", (stage,), start=computed, end=computed + data,
                          waited=data, asynchronous=False))  # fmt: skip
    calls.sort(key=lambda call: call.start)
    return Record(0.0, computed + data, calls, {})


def _messages(key: tuple[str, int, int], stage: int, moments: Moments, p: int) -> list[Call]:
    """Return this stage's side of the message that follows a piece of work."""
    kind, source, number = key
    target = source + 1 if kind == "F" else source - 1
    if not 0 <= target < p or stage not in (source, target):
        return []
    done, begun = moments[key][1], moments[kind, target, number][0]
    group, ranks, tag = "pipeline", tuple(range(p)), int(kind == "B")
    if stage == source:
        return [Call("send", group, ranks, seq=number, peer=target, tag=tag, start=done, end=done)]
    free = max(
        (end for (_, own, _), (_, end) in moments.items() if own == stage and end <= begun), default=0.0
    )
    return [Call("recv", group, ranks, seq=number, peer=source, tag=tag, start=free, end=begun,
                 waited=begun - free, asynchronous=False)]  # fmt: skip
