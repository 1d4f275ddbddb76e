"""Rules for the traffic of data-parallel training in one step, and the first one that a rank's calls break.

Pure functions over recorded calls; called by the checks of exercise 04. Gradients are expected to become
ready in the reverse order of the parameters, so models whose order is checked have to be of that kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from autograder.inside.moments import Unmarked
from autograder.kit.problem import Problem
from autograder.kit.received import named, not_waited_for
from autograder.kit.stretches import Stretch
from autograder.kit.values import dtype_name
from autograder.topics.data_parallelism import mistakes
from fourranks.naming import counted
from fourranks.trace import Call

Sized = TypeVar("Sized", "AllReduce", Call)


@dataclass(frozen=True)
class AllReduce:
    """One that a step has to make: its bytes, and its last gradient by the order of readiness, from 0."""

    nbytes: int
    dtype: str
    last: int


def one_by_one(module: nn.Module) -> list[AllReduce]:
    """Return one all-reduce for each gradient."""
    return [_all_reduce([parameter], last) for last, parameter in enumerate(_by_readiness(module))]


def in_buckets(module: nn.Module, max_bytes: int) -> list[AllReduce]:
    """Return one all-reduce for each bucket of at most so many bytes, or of one gradient, of one dtype."""
    parameters = _by_readiness(module)
    buckets: list[list[int]] = []
    still_open: dict[torch.dtype, list[int]] = {}
    for at, parameter in enumerate(parameters):
        bucket = still_open.get(parameter.dtype)
        if bucket is None or sum(parameters[i].nbytes for i in [*bucket, at]) > max_bytes:
            bucket = still_open[parameter.dtype] = []
            buckets.append(bucket)
        bucket.append(at)
    reduces = [_all_reduce([parameters[at] for at in bucket], bucket[-1]) for bucket in buckets]
    return sorted(reduces, key=lambda reduce: reduce.last)


def _by_readiness(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in reversed(list(module.parameters())) if parameter.requires_grad]


def _all_reduce(parameters: Sequence[nn.Parameter], last: int) -> AllReduce:
    nbytes = sum(parameter.nbytes for parameter in parameters)
    return AllReduce(nbytes, dtype_name(parameters[0].dtype), last)


def unexpected(call: Call) -> Problem:
    """Tell that this call has no place here."""
    return Problem(mistakes.UNEXPECTED_CALL, "no other communication", named(call))


def broken_rules(calls: Sequence[Call], where: str) -> Problem | None:
    """Find a call that is no all-reduce, or whose handle was not waited for."""
    for call in calls:
        if call.op != "all_reduce":
            return Problem(mistakes.UNEXPECTED_CALL, f"{where}: all-reduces only", named(call))
        if problem := not_waited_for([call], where):
            return problem
    return None


def too_much(calls: Sequence[Call], allowed: Sequence[AllReduce], where: str) -> Problem | None:
    """Find more bytes of a dtype than the gradients have, perhaps instead of another dtype's."""
    limits, sent = _bytes_by_dtype(allowed), _bytes_by_dtype(calls)
    missing = [dtype for dtype in limits if not sent[dtype]]
    for dtype, nbytes in sent.items():
        if nbytes > limits[dtype]:
            kind = mistakes.CAST if missing else mistakes.SENT_TWICE
            expected = f"{where}: {counted(limits[dtype], 'byte')} of {dtype} gradients"
            return Problem(kind, expected, f"{counted(nbytes, 'byte')} of {dtype} in all-reduces")
    return None


def _bytes_by_dtype(parts: Sequence[AllReduce | Call]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total[part.dtype] += part.nbytes
    return total


def copied_twice(module: nn.Module, calls: Sequence[Call], until: float, where: str) -> Problem | None:
    """Find more bytes broadcast before the first step than there are parameters and buffers."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    limit = sum(tensor.nbytes for _, tensor in named)  # a tied one may go by each of its names
    sent = sum(call.nbytes for call in calls if call.op == "broadcast" and call.start < until)
    if sent <= limit:
        return None
    expected = f"{where}: {counted(limit, 'byte')} of parameters and buffers"
    return Problem(mistakes.COPIED_TWICE, expected, f"{counted(sent, 'byte')} in broadcasts")


def copied_otherwise(calls: Sequence[Call], until: float, where: str) -> Problem | None:
    """Find data that another call than a broadcast moves before the first step."""
    for call in calls:
        if call.nbytes and call.op != "broadcast" and call.start < until:
            return Problem(mistakes.COPIED_TWICE, f"{where}: broadcasts only", named(call))
    return None


def too_many(calls: Sequence[Call], allowed: Sequence[AllReduce], where: str) -> Problem | None:
    """Find more all-reduces than gradients."""
    if len(calls) <= len(allowed):
        return None
    return Problem(mistakes.ALL_REDUCES, f"{where}: at most {len(allowed)} all-reduces", f"{len(calls)}")


def wrong_number(calls: Sequence[Call], allowed: Sequence[AllReduce], where: str) -> Problem | None:
    """Find another number of all-reduces than of gradients; empty ones may do without."""
    calls, allowed = _with_content(calls), _with_content(allowed)
    if len(calls) == len(allowed):
        return None
    return Problem(
        mistakes.ALL_REDUCES, f"{where}: {len(allowed)} all-reduces, one for each gradient", f"{len(calls)}"
    )


def wrong_buckets(
    calls: Sequence[Call], allowed: Sequence[AllReduce], max_bytes: int, ordered: bool, where: str
) -> Problem | None:
    """Find buckets that are too large, too many, or not in order.

    Args:
        ordered: whether gradients surely become ready in the reverse order of the parameters; else the
            buckets may be others, and one more where a dtype has several.
    """
    calls, allowed = _with_content(calls), _with_content(allowed)
    one_more = not ordered and len(allowed) > len(_bytes_by_dtype(allowed))
    limit = max(max_bytes, *(reduce.nbytes for reduce in allowed))  # a large gradient has its own bucket
    got, want = [call.nbytes for call in calls], [reduce.nbytes for reduce in allowed]
    if max(got, default=0) > limit:
        return Problem(
            mistakes.BUCKET_TOO_LARGE, f"{where}: buckets of at most {limit:,} bytes", f"{max(got):,} bytes"
        )
    if len(got) > len(want) + one_more:
        return Problem(mistakes.TOO_MANY_BUCKETS, f"{where}: {counted(len(want), 'bucket')}", f"{len(got)}")
    if ordered and got != want:
        expected = f"{where}: buckets of {_listed(want)} bytes, the last layer's first"
        return Problem(mistakes.BUCKET_ORDER, expected, f"{_listed(got)} bytes")
    return None


def late(calls: Sequence[Call], allowed: Sequence[AllReduce], step: Stretch, where: str) -> Problem | None:
    """Find a collective that starts when it could long have been under way, or holds up backward.

    One gradient may come between: a layer's weight and bias are ready almost together.

    Args:
        step: with a moment for each gradient that became ready.
    """
    calls, ready = _with_content(calls), step.all("ready")
    if len(ready) != allowed[-1].last + 1:
        raise Unmarked(f"{len(ready)} of {allowed[-1].last + 1} gradients were marked as ready")
    for number, (call, reduce) in enumerate(zip(calls, _with_content(allowed), strict=True), 1):
        upcoming = ready[reduce.last + 1 :]
        name = f"{where}: {call.op.replace('_', '-')} {number}"
        if len(upcoming) > 1 and call.start > upcoming[1]:
            behind = sum(moment < call.start for moment in upcoming)
            return Problem(
                mistakes.LATE, f"{name} starts when its gradient is ready", f"{behind} gradients later"
            )
        if upcoming and call.end is not None and call.end < upcoming[0]:
            return Problem(
                mistakes.NO_OVERLAP, f"{name} is under way while backward goes on", "backward waited for it"
            )
    return None


def _with_content(parts: Sequence[Sized]) -> list[Sized]:
    return [part for part in parts if part.nbytes]


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes[:6]) + (", …" if len(sizes) > 6 else "")
