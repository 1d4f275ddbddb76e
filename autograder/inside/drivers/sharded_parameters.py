"""Driver of exercise 05's `ShardedParameter`: one parameter is gathered, freed and reduced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autograder.inside.drivers import Code, Group, by_columns, memory_of
from autograder.inside.drivers.live_memory import at_rest
from autograder.inside.drivers.small_models import device
from autograder.inside.moments import mark
from autograder.inside.reports import Report
from fourranks.rank.allocations import Allocations

GATHERS = 4  # besides those of `full`
FULLS = 2
REDUCED = (1, 3)  # gradients, when the shard's is looked at
CHANGE = 1.0  # added everywhere by a step of an optimizer


@dataclass(frozen=True)
class ComeAndGo(Report):
    """A rank's part of a parameter, from the first gather to the last reduced gradient.

    Attributes:
        is_parameter: whether an nn.Parameter is in `.shard`.
        trained: whether that has a gradient.
        held: bytes that are there when the whole parameter is not needed any more.
        left_by_free: bytes that are there after a gather and a free, and were not before.
        left_by_reducing: likewise after a gradient was reduced; that of the shard is one of them.
        gathered_again: after the shard was changed.
        full: likewise.
        full_is_apart: whether that has other memory than what is gathered at the same time.
        full_again: after a free and another change of the shard.
        gradients: of the shard, when one gradient was reduced, and when all were.
    """

    is_parameter: bool
    trained: bool
    shard: torch.Tensor
    held: int
    left_by_free: int
    left_by_reducing: int
    gathered: torch.Tensor
    gathered_again: torch.Tensor
    full: torch.Tensor
    full_is_apart: bool
    full_again: torch.Tensor
    gradients: list[torch.Tensor]


def come_and_go(
    sharded_parameter: Code,
    whole: torch.Tensor,
    gradients: list[torch.Tensor],
    options: Mapping[str, str | None],
    frozen: bool,
    group: Group = None,
) -> ComeAndGo:
    """Gather four times, once in vain, reduce gradients, and ask for all of it after each of two changes.

    A method with nothing left to do is called again. Gradients are not contiguous if they can be otherwise.
    """
    dtype = getattr(torch, options["compute_dtype"]) if options["compute_dtype"] else None
    mark("began")
    with Allocations() as memory:
        parameter = nn.Parameter(whole.to(device(), copy=True), requires_grad=not frozen)
        sharded = sharded_parameter(parameter, compute_dtype=dtype, group=group)
        del parameter
        held = at_rest(memory)
    shard = sharded.shard.detach().clone()
    left_by_free = _left_by_free(sharded)
    sharded.start_gathering()
    sharded.free()  # as when a layer that was gathered early is not used
    sharded.free()
    sharded.start_gathering()
    sharded.start_gathering()
    mark("started gathering")
    sharded.gathered()
    sharded.start_gathering()
    gathered = sharded.gathered().detach().clone()
    sharded.free()
    sharded.finish_reducing()
    with Allocations() as memory:
        sharded.start_reducing(by_columns(gradients[0].to(device())))
        mark("started reducing")
        sharded.finish_reducing()
        left_by_reducing = at_rest(memory)
    reduced = [_reduced(sharded)]
    for gradient in gradients[1:]:  # of which the first is still on its way when the second starts
        sharded.start_reducing(by_columns(gradient.to(device())))
    reduced.append(_reduced(sharded))
    _change(sharded)
    in_use = sharded.gathered().detach()
    gathered_again = in_use.clone()
    mark("full")
    whole_again = sharded.full().detach()
    full, full_is_apart = whole_again.clone(), memory_of(whole_again) != memory_of(in_use)
    sharded.gathered()  # which full() has left alone
    sharded.free()
    _change(sharded)
    full_again = sharded.full().detach().clone()
    is_parameter = isinstance(sharded.shard, nn.Parameter)
    trained = sharded.shard.requires_grad
    return ComeAndGo(
        is_parameter,
        trained,
        shard,
        held,
        left_by_free,
        left_by_reducing,
        gathered,
        gathered_again,
        full,
        full_is_apart,
        full_again,
        reduced,
    )


def _change(sharded: Any) -> None:
    """Change the shard as a step of an optimizer does."""
    with torch.no_grad():
        sharded.shard += CHANGE


def _left_by_free(sharded: Any) -> int:
    with Allocations() as memory:
        sharded.gathered()
        sharded.free()
        return at_rest(memory)


def _reduced(sharded: Any) -> torch.Tensor:
    """Return the shard's gradient when all that was started is there."""
    sharded.finish_reducing()
    sharded.finish_reducing()
    return sharded.shard.grad.detach().clone()
