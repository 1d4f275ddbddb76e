"""Checks of exercise 06's modules: cut over ranks, each must equal the module that one process has.

That module, in `autograder.unsharded`, runs here, with weights that the ranks get to load. Each rank must
then have its part of the output and of every gradient, at the price that `activation_traffic` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import nn

from autograder.inside.drivers import tensor_parallelism as drivers
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.student import Function, Outcome
from autograder.topics.tensor_parallelism import blocks
from autograder.topics.tensor_parallelism.activation_traffic import excess, least_received
from autograder.topics.tensor_parallelism.banned import BANNED
from autograder.topics.tensor_parallelism.blocks import Block
from autograder.topics.tensor_parallelism.differentiable_collectives import refusal
from autograder.topics.tensor_parallelism.mistakes import (
    ANOTHER_OUTPUT,
    BIAS_ADDED_BY_EVERY_RANK,
    CUT_ACROSS_HEADS,
    CUT_GRAPH,
    GRADIENT_OF_EVERY_RANK_ADDED,
    GRADIENT_OF_ONE_PART,
    NAMES_OF_SHARDS,
    PARTIAL_OUTPUT,
    REPLACED_BY_LOAD_FULL,
    WHOLE_WEIGHT_HELD,
    WHOLE_WEIGHT_MADE,
    WRONG_PART_OF_A_GRADIENT,
    WRONG_SHARD,
)
from autograder.topics.tensor_parallelism.shards import WHOLE, Cut, Tensors, cut_all, parts_of_a_sum
from autograder.topics.tensor_parallelism.trials import by_rank, names, trial

Code = Callable | Function
Outcomes = Sequence[tuple[str, Outcome]]


def column_parallel_linear(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `ColumnParallelLinear`: values, gradients, traffic, and what each rank holds.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge(
        "ColumnParallelLinear",
        code,
        _cases(world_sizes, seed, blocks.column, blocks.indivisible_width),
        seed,
        BANNED,
    )


def row_parallel_linear(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `RowParallelLinear`: values, gradients, traffic, and what each rank holds.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge(
        "RowParallelLinear",
        code,
        _cases(world_sizes, seed, blocks.row, blocks.indivisible_input),
        seed,
        BANNED,
    )


def parallel_mlp(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `ParallelMLP`: one all-reduce forward and one backward.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("ParallelMLP", code, _cases(world_sizes, seed, blocks.mlp, blocks.indivisible_width), seed, BANNED)


def parallel_attention(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `ParallelAttention`: one all-reduce forward and one backward, with heads that stay together.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge(
        "ParallelAttention",
        code,
        _cases(world_sizes, seed, blocks.attention, blocks.indivisible_heads),
        seed,
        BANNED,
    )


def all_gather_mlp(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `AllGatherMLP`: an all-gather a layer forward, a reduce-scatter backward.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge(
        "AllGatherMLP",
        code,
        _cases(world_sizes, seed, blocks.deep_mlp, blocks.indivisible_layers),
        seed,
        BANNED,
    )


def sequence_parallel_mlp(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `SequenceParallelMLP`: the input is cut along the sequence, and so is the output.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge(
        "SequenceParallelMLP",
        code,
        _cases(world_sizes, seed, blocks.sequence_mlp, blocks.indivisible_width),
        seed,
        BANNED,
    )


def _cases(
    world_sizes: Sequence[int],
    seed: int,
    sizes: Callable[[int], Iterator[Block]],
    indivisible: Callable[[int], tuple],
) -> Iterator[Trial]:
    for setting in settings(world_sizes, seed):
        num_ranks = len(setting.ranks)
        for block in sizes(num_ranks):
            yield _trial(setting, block)
        if num_ranks > 1:
            arguments, *numbers = indivisible(num_ranks)
            yield refusal(setting, arguments, {}, *numbers)


def _trial(setting: Setting, block: Block) -> Trial:
    num_ranks = len(setting.ranks)
    whole = _drawn(block.whole().double(), setting.draws)
    x = _randn(block.inputs, setting.draws).requires_grad_()
    output = whole(x)
    cotangent = _randn(output.shape, setting.draws)
    output.backward(cotangent)
    state = {name: parameter.detach() for name, parameter in whole.named_parameters()}
    inputs = block.input_cut.parts(x.detach(), num_ranks)
    cotangents = block.output_cut.parts(cotangent, num_ranks)
    return trial(
        setting,
        block.title,
        drivers.run,
        lambda at: (list(block.arguments), block.options, state, inputs[at], cotangents[at]),
        partial(_examine, block, state, output.detach(), x.grad, _gradients(whole)),
        received=least_received(block.traffic, num_ranks),
    )


def _randn(shape: Sequence[int], draws: Draws) -> torch.Tensor:
    return draws.randn(shape, torch.float64)


def _drawn(module: nn.Module, draws: Draws) -> nn.Module:
    """The module with every parameter drawn anew: biases and norms are not what they are at first, either."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(_randn(parameter.shape, draws) / 2)
    return module


def _gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def _examine(
    block: Block,
    state: dict[str, torch.Tensor],
    output: torch.Tensor,
    input_gradient: torch.Tensor,
    gradients: dict[str, torch.Tensor],
    outcomes: Outcomes,
) -> Problem | None:
    return (
        _wrong_parameters(block, state, outcomes)
        or _whole_weight(block, state, outcomes)
        or _wrong_output(block, state, output, outcomes)
        or _wrong_input_gradient(block, input_gradient, outcomes)
        or _wrong_gradients(block, gradients, outcomes)
        or first(excess(block.traffic, outcome, len(outcomes), rank) for rank, outcome in outcomes)
    )


def _wrong_parameters(block: Block, state: dict[str, torch.Tensor], outcomes: Outcomes) -> Problem | None:
    """Parameters with other names, or after `load_full` with other values than this rank's part has."""
    wanted = cut_all(state, block.cuts, len(outcomes))
    naive = cut_all(state, {name: Cut(cut.dim) for name, cut in block.cuts.items()}, len(outcomes))
    for at, (rank, outcome) in enumerate(outcomes):
        loaded = outcome.value["loaded"]
        if loaded.keys() != state.keys():
            return Problem(NAMES_OF_SHARDS, f"{rank}: {', '.join(state)}", ", ".join(loaded) or "none")
        if not outcome.value["kept"]:
            return Problem(REPLACED_BY_LOAD_FULL, f"{rank}: the same parameters after load_full", "others")
        for name in state:
            mistakes = ((CUT_ACROSS_HEADS, [naive[at][name]]),) if block.cuts[name].blocks > 1 else ()
            tensors = Tensors(f"{name} after load_full", [wanted[at][name]], WRONG_SHARD, mistakes)
            if problem := tensors.wrong([loaded[name]], [rank]):
                return problem
    return None


def _whole_weight(block: Block, state: dict[str, torch.Tensor], outcomes: Outcomes) -> Problem | None:
    """More elements in one tensor than the largest part has: a weight that was not cut."""
    largest = max(part.numel() for part in cut_all(state, block.cuts, len(outcomes))[0].values())
    for rank, outcome in outcomes:
        for key, kind in (("held", WHOLE_WEIGHT_HELD), ("made", WHOLE_WEIGHT_MADE)):
            if outcome.value[key] > largest:
                expected = f"{rank}: tensors of at most {largest:,} elements, as its largest shard"
                return Problem(kind, expected, f"one of {outcome.value[key]:,}")
    return None


def _wrong_output(
    block: Block, state: dict[str, torch.Tensor], output: torch.Tensor, outcomes: Outcomes
) -> Problem | None:
    n, found = len(outcomes), by_rank(outcomes, "output")
    too_often = output + (n - 1) * state[block.added_once] if block.added_once else output
    mistakes = [(BIAS_ADDED_BY_EVERY_RANK, block.output_cut.parts(too_often, n))]
    partial_sums = block.output_cut is WHOLE and any(parts_of_a_sum(found, s) for s in (output, too_often))
    otherwise = PARTIAL_OUTPUT if partial_sums else ANOTHER_OUTPUT
    tensors = Tensors("output", block.output_cut.parts(output, n), otherwise, mistakes)
    if problem := tensors.wrong(found, names(outcomes)):
        return problem
    for rank, outcome in outcomes:
        if not outcome.value["differentiable"]:
            return Problem(CUT_GRAPH, f"{rank}: an output with a grad_fn", "one without")
    return None


def _wrong_input_gradient(block: Block, want: torch.Tensor, outcomes: Outcomes) -> Problem | None:
    found = by_rank(outcomes, "gradient")
    return _wrong_gradient("gradient of the input", block.input_cut, want, found, outcomes)


def _wrong_gradients(block: Block, wanted: dict[str, torch.Tensor], outcomes: Outcomes) -> Problem | None:
    found = by_rank(outcomes, "gradients")
    return first(
        _wrong_gradient(f"{name}.grad", block.cuts[name], want, [each[name] for each in found], outcomes)
        for name, want in wanted.items()
    )


def _wrong_gradient(
    name: str, cut: Cut, want: torch.Tensor, found: list[object], outcomes: Outcomes
) -> Problem | None:
    n, parts = len(outcomes), cut.parts(want, len(outcomes))
    partial_sums = cut is WHOLE and parts_of_a_sum(found, want)
    otherwise = GRADIENT_OF_ONE_PART if partial_sums else WRONG_PART_OF_A_GRADIENT
    mistakes = [(GRADIENT_OF_EVERY_RANK_ADDED, [each * n for each in parts])]
    return Tensors(name, parts, otherwise, mistakes).wrong(found, names(outcomes))
