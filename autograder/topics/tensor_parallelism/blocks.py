"""The modules of exercise 06 in sizes that a check tries: how each is cut over n ranks, and what it may send.

Called by `checks.tensor_parallelism`. Widths that are cut are multiples of n; the others are 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from autograder.topics.tensor_parallelism.shards import WHOLE, Cut
from autograder.topics.tensor_parallelism.traffic import AllowedCollective, AllowedTraffic
from autograder.unsharded import MLP, Attention, DeepMLP, PreNormMLP
from fourranks.naming import counted

BYTES = 8  # of an element: all is in float64
ROWS, COLUMNS, LAST = Cut(0), Cut(1), Cut(-1)


@dataclass(frozen=True)
class ShardedBlock:
    """A module that is cut over ranks, with the module of one process that it must equal.

    Attributes:
        title: for the student.
        whole: makes the module of one process.
        arguments: for the constructor of the student's, with `options`.
        inputs: the shape of the input, before it is cut.
        cuts: how each parameter is cut.
        input_cut: how the input is cut.
        output_cut: likewise.
        added_once: the parameter that is added after the sum over the ranks.
        traffic: that is allowed.
        traits: its special properties, for the hint.
    """

    title: str
    whole: Callable[[], nn.Module]
    arguments: tuple[Any, ...]
    inputs: tuple[int, ...]
    cuts: dict[str, Cut]
    traffic: AllowedTraffic
    options: dict[str, bool] = field(default_factory=dict)
    input_cut: Cut = WHOLE
    output_cut: Cut = WHOLE
    added_once: str = ""
    traits: tuple[str, ...] = ()


def column(n: int) -> Iterator[ShardedBlock]:
    for bias, gather, inputs in ((True, False, (3, 7)), (False, True, (2, 3, 7)), (True, True, (1, 7))):
        whole_output = (*inputs[:-1], 3 * n)
        yield ShardedBlock(
            f"{'with' if bias else 'without'} bias, output {'gathered' if gather else 'cut'}",
            partial(nn.Linear, 7, 3 * n, bias=bias),
            (7, 3 * n),
            inputs,
            {"weight": ROWS, "bias": ROWS},
            AllowedTraffic(
                (_collective("all_gather", whole_output),) if gather else (),
                (_collective("all_reduce", inputs),),
            ),
            _other_than({"bias": True, "gather_output": False}, bias=bias, gather_output=gather),
            output_cut=WHOLE if gather else LAST,
        )


def row(n: int) -> Iterator[ShardedBlock]:
    for bias, is_cut, leading in ((True, True, (2, 3)), (False, True, (3,)), (True, False, (1, 2))):
        inputs = (*leading, 2 * n)
        yield ShardedBlock(
            f"{'with' if bias else 'without'} bias, input {'cut' if is_cut else 'whole'}",
            partial(nn.Linear, 2 * n, 7, bias=bias),
            (2 * n, 7),
            inputs,
            {"weight": COLUMNS, "bias": WHOLE},
            AllowedTraffic(
                (_collective("all_reduce", (*leading, 7)),),
                () if is_cut else (_collective("all_gather", inputs),),
            ),
            _other_than({"bias": True, "input_is_parallel": True}, bias=bias, input_is_parallel=is_cut),
            input_cut=LAST if is_cut else WHOLE,
            added_once="bias" if bias else "",
        )


_MLP_CUTS = {"up.weight": ROWS, "up.bias": ROWS, "down.weight": COLUMNS, "down.bias": WHOLE}


def mlp(n: int) -> Iterator[ShardedBlock]:
    for inputs in ((2, 3, 7), (5, 7)):
        yield ShardedBlock(
            f"input of shape {inputs}",
            partial(MLP, 7, 3 * n),
            (7, 3 * n),
            inputs,
            _MLP_CUTS,
            _one_all_reduce_each_way(inputs),
            added_once="down.bias",
        )


def attention(n: int) -> Iterator[ShardedBlock]:
    by_heads = Cut(0, blocks=3)
    cuts = {"qkv.weight": by_heads, "qkv.bias": by_heads, "out.weight": COLUMNS, "out.bias": WHOLE}
    for per_rank, causal, leading in ((2, True, (2, 5)), (1, False, (1, 7)), (2, False, (1, 3))):
        num_heads = per_rank * n
        inputs = (*leading, 3 * num_heads)
        yield ShardedBlock(
            f"{counted(num_heads, 'head')}{', causal' if causal else ''}",
            partial(Attention, 3 * num_heads, num_heads, causal),
            (3 * num_heads, num_heads),
            inputs,
            cuts,
            _one_all_reduce_each_way(inputs),
            _other_than({"causal": True}, causal=causal),
            added_once="out.bias",
            traits=("mask" if causal else "no mask", *["heads"] * (per_rank > 1)),
        )


def deep_mlp(n: int) -> Iterator[ShardedBlock]:
    for num_layers, leading in ((3, (1, 5)), (1, (5,))):
        inputs, kinds = (*leading, 2 * n), ("weight", "bias")
        inner = (_collective("reduce_scatter", inputs, num_layers - 1),) if num_layers > 1 else ()
        yield ShardedBlock(
            counted(num_layers, "layer"),
            partial(DeepMLP, 2 * n, num_layers),
            (2 * n, num_layers),
            inputs,
            {f"layers.{layer}.{kind}": ROWS for layer in range(num_layers) for kind in kinds},
            AllowedTraffic(
                (_collective("all_gather", inputs, num_layers),), (*inner, _collective("all_reduce", inputs))
            ),
        )


def sequence_mlp(n: int) -> Iterator[ShardedBlock]:
    for inputs in ((2, 3 * n, 7), (1, n, 7)):
        gather_and_scatter = (_collective("all_gather", inputs), _collective("reduce_scatter", inputs))
        yield ShardedBlock(
            f"input of shape {inputs}",
            partial(PreNormMLP, 7, 3 * n),
            (7, 3 * n),
            inputs,
            {"norm.weight": WHOLE, "norm.bias": WHOLE, **_MLP_CUTS},
            AllowedTraffic(gather_and_scatter, (*gather_and_scatter, _collective("all_reduce", (7,), 3))),
            input_cut=COLUMNS,
            output_cut=COLUMNS,
            added_once="down.bias",
        )


def _other_than(defaults: dict[str, bool], **options: bool) -> dict[str, bool]:
    """Leave out options that are the defaults, so that those are tried, too."""
    return {name: value for name, value in options.items() if value != defaults[name]}


def _collective(op: str, shape: Sequence[int], count: int = 1) -> AllowedCollective:
    return AllowedCollective(op, torch.Size(shape).numel() * BYTES, count)


def _one_all_reduce_each_way(shape: Sequence[int]) -> AllowedTraffic:
    return AllowedTraffic((_collective("all_reduce", shape),), (_collective("all_reduce", shape),))


def indivisible_width(n: int) -> tuple[list[int], int]:
    """Return arguments of a constructor, and the number in them that does not divide."""
    return [2 * n, n + 1], n + 1


def indivisible_input(n: int) -> tuple[list[int], int]:
    return [n + 1, 2 * n], n + 1


def indivisible_layers(n: int) -> tuple[list[int], int]:
    return [n + 1, 2], n + 1


def indivisible_heads(n: int) -> tuple[list[int], int]:
    return [n * (n + 1), n + 1], n + 1  # the width divides
