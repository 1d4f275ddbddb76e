"""Checks of exercise 06's modules: cut over ranks, each must equal the module that one process has.

That module, in `autograder.unsharded`, runs here, with weights that the ranks get to load. A rank gets other
numbers where the others' parts are: with them it cannot compute alone what it should get by a collective.
Each rank must then have its part of the output and of every gradient, at the price that `traffic` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.func import functional_call

from autograder.inside.drivers import tensor_parallelism as drivers
from autograder.kit.case import Trial, used_before
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import WRONG_TYPE, Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.topics.tensor_parallelism import blocks, mistakes
from autograder.topics.tensor_parallelism.banned import BANNED
from autograder.topics.tensor_parallelism.blocks import ShardedBlock
from autograder.topics.tensor_parallelism.differentiable_collectives import cut_graph, elsewhere, refusal
from autograder.topics.tensor_parallelism.shards import WHOLE, Cut, Tensors, cut_all, parts_of_a_sum
from autograder.topics.tensor_parallelism.traffic import excess, least_received
from autograder.topics.tensor_parallelism.trials import Outcomes, ShardedTrial, names, together

Blocks = Callable[[int], Iterator[ShardedBlock]]  # by the number of ranks
State = dict[str, torch.Tensor]  # by the name of a parameter


def _module(
    name: str, indivisible: Callable[[int], tuple[list[int], int]]
) -> Callable[[Blocks], Callable[..., None]]:
    """Make a check of a module, of a function that gives its sizes; `indivisible` ones must be refused."""

    def decorate(sizes: Blocks) -> Callable[..., None]:
        def draw(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
            for setting in settings(world_sizes, seed):
                num_ranks = len(setting.ranks)
                trials = [_trial(setting, block) for block in sizes(num_ranks)]
                yield from trials
                yield _after_another_input(trials[0])
                if num_ranks > 1:
                    arguments, number = indivisible(num_ranks)
                    yield refusal(setting, arguments, number)

        draw.__name__, draw.__qualname__, draw.__doc__ = sizes.__name__, sizes.__name__, sizes.__doc__
        return check(name, BANNED)(draw)

    return decorate


@_module("ColumnParallelLinear", blocks.indivisible_width)
def column_parallel_linear(num_ranks: int) -> Iterator[ShardedBlock]:
    """Check `ColumnParallelLinear`: values, gradients, traffic, and what each rank holds."""
    return blocks.column(num_ranks)


@_module("RowParallelLinear", blocks.indivisible_input)
def row_parallel_linear(num_ranks: int) -> Iterator[ShardedBlock]:
    """Check `RowParallelLinear`: values, gradients, traffic, and what each rank holds."""
    return blocks.row(num_ranks)


@_module("ParallelMLP", blocks.indivisible_width)
def parallel_mlp(num_ranks: int) -> Iterator[ShardedBlock]:
    """Check `ParallelMLP`: one all-reduce forward and one backward."""
    return blocks.mlp(num_ranks)


@_module("ParallelAttention", blocks.indivisible_heads)
def parallel_attention(num_ranks: int) -> Iterator[ShardedBlock]:
    """Check `ParallelAttention`: one all-reduce forward and one backward, with heads that stay together."""
    return blocks.attention(num_ranks)


@_module("AllGatherMLP", blocks.indivisible_layers)
def all_gather_mlp(num_ranks: int) -> Iterator[ShardedBlock]:
    """Check `AllGatherMLP`: an all-gather a layer forward, a reduce-scatter backward."""
    return blocks.deep_mlp(num_ranks)


@_module("SequenceParallelMLP", blocks.indivisible_width)
def sequence_parallel_mlp(num_ranks: int) -> Iterator[ShardedBlock]:
    """Check `SequenceParallelMLP`: the input is cut along the sequence, and so is the output."""
    return blocks.sequence_mlp(num_ranks)


@dataclass(frozen=True)
class _ExpectedModule:
    """The right results of a module that is cut over ranks.

    Attributes:
        states: for each rank to load: its own part, and other numbers where the other ranks' parts are.
        inputs: of each rank.
        output: of the whole module, with `input_gradient` and the parameters' `gradients`.
        of_all_loaded: the output of each rank if it used all that it loads.
    """

    states: list[State]
    inputs: list[torch.Tensor]
    output: torch.Tensor
    input_gradient: torch.Tensor
    gradients: State
    of_all_loaded: list[torch.Tensor]


def _trial(setting: Setting, block: ShardedBlock) -> Trial:
    num_ranks = len(setting.ranks)
    whole = _drawn(block.whole().double(), setting.draws)
    x = _randn(block.inputs, setting.draws).requires_grad_()
    output = whole(x)
    cotangent = _randn(output.shape, setting.draws)
    output.backward(cotangent)
    assert x.grad is not None
    inputs = block.input_cut.parts(x.detach(), num_ranks)
    cotangents = block.output_cut.parts(cotangent, num_ranks)
    states = [_loaded(whole, block, at, num_ranks, setting.draws) for at in range(num_ranks)]
    of_all_loaded = [
        block.output_cut.parts(functional_call(whole, state, x).detach(), num_ranks)[at]
        for at, state in enumerate(states)
    ]
    expected = _ExpectedModule(states, inputs, output.detach(), x.grad, _gradients(whole), of_all_loaded)
    return setting.trial(
        block.title,
        drivers.run,
        lambda at, _: (list(block.arguments), block.options, states[at], inputs[at], cotangents[at]),
        kind=ShardedTrial,
        verify=together(partial(_examine, block, expected)),
        received=lambda _: least_received(block.traffic, num_ranks),
        traits=block.traits,
    )


def _after_another_input(trial: Trial) -> Trial:
    """Make the trial one of a module that has been used with other numbers, and fewer of them."""
    inputs = [given and (given[3].flip(-1).narrow(-2, 0, 1), *given) for given in trial.inputs]
    return used_before(trial, drivers.run_again, inputs)


def _loaded(whole: nn.Module, block: ShardedBlock, at: int, num_ranks: int, draws: Draws) -> State:
    """Return the whole state as one rank gets it: with new random numbers for the parts of other ranks."""
    return {
        name: block.cuts[name].only(at, parameter.detach(), _randn(parameter.shape, draws), num_ranks)
        for name, parameter in whole.named_parameters()
    }


def _randn(shape: Sequence[int], draws: Draws) -> torch.Tensor:
    return draws.randn(shape, torch.float64)


def _drawn(module: nn.Module, draws: Draws) -> nn.Module:
    """Draw every parameter of the module: biases and norms are not what they are at first, either."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(_randn(parameter.shape, draws) / 2)
    return module


def _gradients(module: nn.Module) -> State:
    named = module.named_parameters()
    return {name: parameter.grad for name, parameter in named if parameter.grad is not None}


def _examine(block: ShardedBlock, expected: _ExpectedModule, outcomes: Outcomes) -> Problem | None:
    return (
        _wrong_parameters(block, expected.states, outcomes)
        or _whole_weight(block, expected.states[0], outcomes)
        or first(_in_shared_memory(rank, outcome.value) for rank, outcome in outcomes)
        or _wrong_output(block, expected, outcomes)
        or _wrong_input_gradient(block, expected.input_gradient, outcomes)
        or _wrong_gradients(block, expected.gradients, outcomes)
        or elsewhere([outcome.value.elsewhere for _, outcome in outcomes], expected.inputs, outcomes)
        or first(excess(block.traffic, outcome, len(outcomes), rank) for rank, outcome in outcomes)
    )


def _wrong_parameters(block: ShardedBlock, states: Sequence[State], outcomes: Outcomes) -> Problem | None:
    """Find parameters with other names, or after `load_full` with other values than this rank's part has."""
    naive_cuts = {name: Cut(cut.dim) for name, cut in block.cuts.items()}
    for at, (rank, outcome) in enumerate(outcomes):
        ran: drivers.ModuleRun = outcome.value
        if ran.loaded.keys() != states[at].keys():
            expected = f"{rank}: {', '.join(states[at])}"
            return Problem(mistakes.NAMES_OF_SHARDS, expected, ", ".join(ran.loaded) or "none")
        if not ran.kept:
            expected = f"{rank}: the same parameters after load_full"
            return Problem(mistakes.REPLACED_BY_LOAD_FULL, expected, "others")
        wanted, naive = (cut_all(states[at], cuts, len(outcomes))[at] for cuts in (block.cuts, naive_cuts))
        for name in wanted:
            known = ((mistakes.CUT_ACROSS_HEADS, [naive[name]]),) if block.cuts[name].blocks > 1 else ()
            tensors = Tensors(f"{name} after load_full", [wanted[name]], mistakes.WRONG_SHARD, known)
            if problem := tensors.wrong([ran.loaded[name]], [rank]):
                return problem
    return None


def _whole_weight(block: ShardedBlock, state: State, outcomes: Outcomes) -> Problem | None:
    """Find a tensor as large as a whole weight that is sharded; others, such as masks, may have any size."""
    largest = max(part.numel() for part in cut_all(state, block.cuts, len(outcomes))[0].values())
    whole = {weight.numel() for weight in state.values() if weight.numel() > largest}
    for rank, outcome in outcomes:
        ran: drivers.ModuleRun = outcome.value
        for numels, kind in ((ran.held, mistakes.WHOLE_WEIGHT_HELD), (ran.made, mistakes.WHOLE_WEIGHT_MADE)):
            for numel in whole.intersection(numels):
                expected = f"{rank}: tensors of at most {largest:,} elements, as its largest shard"
                return Problem(kind, expected, f"one of {numel:,}")
    return None


def _in_shared_memory(rank: str, ran: drivers.ModuleRun) -> Problem | None:
    if ran.apart:
        return None
    expected = f"{rank}: parameters in memory of their own"
    return Problem(mistakes.SHARED_WITH_THE_STATE_DICT, expected, "in that of the state dict")


def _wrong_output(block: ShardedBlock, expected: _ExpectedModule, outcomes: Outcomes) -> Problem | None:
    n, output, found = len(outcomes), expected.output, [outcome.value.output for _, outcome in outcomes]
    bias = expected.states[0][block.added_once] if block.added_once else torch.zeros(())
    too_often, without_bias = output + (n - 1) * bias, output - bias
    known = [
        (mistakes.BIAS_ADDED_BY_EVERY_RANK, block.output_cut.parts(too_often, n)),
        (mistakes.WEIGHTS_OF_OTHERS_USED, expected.of_all_loaded),
        (mistakes.BIAS_MISSING, block.output_cut.parts(without_bias, n)),
    ]
    partial_sums = block.output_cut is WHOLE and any(parts_of_a_sum(found, s) for s in (output, too_often))
    otherwise = mistakes.PARTIAL_OUTPUT if partial_sums else mistakes.ANOTHER_OUTPUT
    parts = block.output_cut.parts(output, n)
    tensors = Tensors("output", parts, otherwise, known, absent=WRONG_TYPE)
    return tensors.wrong(found, names(outcomes)) or cut_graph(outcomes, "an output")


def _wrong_input_gradient(block: ShardedBlock, want: torch.Tensor, outcomes: Outcomes) -> Problem | None:
    found = [outcome.value.gradient for _, outcome in outcomes]
    return _wrong_gradient("gradient of the input", block.input_cut, want, found, outcomes)


def _wrong_gradients(block: ShardedBlock, wanted: State, outcomes: Outcomes) -> Problem | None:
    found = [outcome.value.gradients for _, outcome in outcomes]
    shared = {block.added_once: mistakes.SHARE_OF_THE_BIAS_ADDED}  # what 1/N of a gradient would show
    return first(
        _wrong_gradient(
            f"{name}.grad",
            block.cuts[name],
            want,
            [own.get(name) for own in found],
            outcomes,
            [(shared[name], [want / len(found)] * len(found))] if name in shared else (),
        )
        for name, want in wanted.items()
    )


def _wrong_gradient(
    name: str,
    cut: Cut,
    want: torch.Tensor,
    found: list[torch.Tensor | None],
    outcomes: Outcomes,
    usual: Sequence[tuple[Mistake, Sequence[torch.Tensor]]] = (),
) -> Problem | None:
    n, parts = len(outcomes), cut.parts(want, len(outcomes))
    partial_sums = cut is WHOLE and parts_of_a_sum(found, want)
    otherwise = mistakes.GRADIENT_OF_ONE_PART if partial_sums else mistakes.WRONG_PART_OF_A_GRADIENT
    known = [(mistakes.GRADIENT_OF_EVERY_RANK_ADDED, [each * n for each in parts]), *usual]
    return Tensors(name, parts, otherwise, known).wrong(found, names(outcomes))
