"""Check of exercise 08's `checkpointed`: the results of a plain call, with nothing alive in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from autograder.inside.drivers import checkpointing as drivers
from autograder.inside.drivers.checkpointing import Layers, Recomputed
from autograder.inside.drivers.pipeline_parallelism import Gradients
from autograder.inside.reports import as_many
from autograder.kit.case import Trial, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Outcome
from autograder.kit.values import close, kind_of, largest_difference
from autograder.topics.three_d_parallelism import mistakes
from autograder.topics.three_d_parallelism.banned import BANNED
from fourranks.naming import counted

TOLERANCE = 1e-9  # of float64, for another order of summation
WIDTH = 5


@check(banned=BANNED)
def checkpointed(code: Code, num_layers: Sequence[int] = (1, 3), seed: int = 0) -> Cases:
    """Check `checkpointed`: values, gradients, random numbers, and what is alive between the passes.

    Args:
        num_layers: that follow one another, each checkpointed.
    """
    draws = Draws(seed)
    for number_of in num_layers:
        name = counted(number_of, "layer")
        yield _trial(name, _CheckpointedCall.draw(number_of, draws), 0)
        yield _trial(f"{name}, dropout", _CheckpointedCall.draw(number_of, draws, dropout=True), 1)
        yield _trial(
            f"{name}, input without gradient", _CheckpointedCall.draw(number_of, draws, leaf=False), 2
        )
        yield _trial(f"{name} of two results", _CheckpointedCall.draw(number_of, draws, pair=True), 3)
        yield _trial(f"{name} under no_grad", _CheckpointedCall.draw(number_of, draws, recorded=False), 4)


@dataclass(frozen=True)
class _CheckpointedCall:
    """Inputs of the driver; `expected` follows from them, by a plain call."""

    x: torch.Tensor
    weights: list[list[torch.Tensor]]
    seed: int
    dropout: bool = False
    pair: bool = False
    leaf: bool = True
    recorded: bool = True

    @classmethod
    def draw(cls, number_of: int, draws: Draws, **options: bool) -> _CheckpointedCall:
        weights = [[draws.randn((WIDTH, WIDTH), torch.float64) / 2 for _ in "ab"] for _ in range(number_of)]
        return cls(draws.randn((4, WIDTH), torch.float64), weights, draws.seed(number_of), **options)

    @property
    def inputs(self) -> tuple[object, ...]:
        return self.x, self.weights, self.dropout, self.pair, self.leaf, self.recorded, self.seed

    def expected(self) -> Recomputed:
        """Compute what a plain call gives."""
        with torch.random.fork_rng(devices=[]):
            layers = Layers.of(self.weights, self.dropout, self.pair)
            return drivers.follow(layers, self.x, self.leaf, self.recorded, self.seed)

    def verify(self, outcome: Outcome) -> Problem | None:
        got: Recomputed = outcome.value
        want = self.expected()
        if got.type != "Tensor" or len(got.outputs) < len(want.outputs):
            expected = f"{'two tensors' if self.pair else 'a tensor'}, as the function returns"
            return Problem(mistakes.NOT_THE_RESULT, expected, f"a {got.type}")
        return (
            _differing(mistakes.NOT_THE_RESULT, "result", got.outputs, want.outputs)
            or self._graph(got, want)
            or _differing(
                mistakes.RANDOM_STATE_OF_FORWARD, "numbers after forward", got.random, want.random[:1]
            )
            or self._gradients("an argument", got.inputs, want.inputs, mistakes.WRONG_ARGUMENT_GRADIENT)
            or self._gradients("a parameter", got.weights, want.weights, mistakes.WRONG_PARAMETER_GRADIENT)
            or _differing(
                mistakes.RANDOM_STATE_LEFT_BEHIND, "numbers after backward", got.random[1:], want.random[1:]
            )
            or self._price(got)
        )

    def _graph(self, got: Recomputed, want: Recomputed) -> Problem | None:
        if got.differentiable == want.differentiable:
            return None
        if want.differentiable:
            return Problem(mistakes.NO_GRAPH, "a result with a grad_fn", "one without")
        return Problem(mistakes.GRAPH_WITHOUT_GRADIENTS, "a result without a grad_fn", "one with")

    def _gradients(self, of: str, got: Gradients, want: Gradients, mistake: Mistake) -> Problem | None:
        return _differing(
            mistakes.OTHER_RANDOM_NUMBERS if self.dropout else mistake, f"gradient of {of}", got, want
        )

    def _price(self, got: Recomputed) -> Problem | None:
        number_of = len(self.weights)
        if got.forwards < number_of:
            expected = f"{counted(number_of, 'call')} of the function in forward"
            return Problem(mistakes.NOT_THE_RESULT, expected, f"{got.forwards}")
        # Two results of a layer are both part of the graph outside, which may hold what they are made of.
        if self.recorded and not self.pair and got.alive:
            expected = "no intermediate result alive between forward and backward"
            return Problem(mistakes.CHECKPOINT_KEEPS_ACTIVATIONS, expected, f"{got.alive}")
        most = number_of * (2 if self.recorded else 1)
        if got.forwards > number_of or got.total > most:
            expected = f"{counted(number_of, 'call')} in forward, {most} in all"
            got_text = f"{got.forwards} and {got.total}"
            return Problem(mistakes.COMPUTED_AGAIN_TOO_OFTEN, expected, got_text)
        return None


def _trial(title: str, run: _CheckpointedCall, size: int) -> Trial:
    return on_one_rank(title, run.inputs, run.verify, drivers.run, size=size)


def _differing(
    mistake: Mistake,
    name: str,
    got: Sequence[torch.Tensor | None],
    want: Sequence[torch.Tensor | None],
) -> Problem | None:
    """Find the first tensor that is not as it has to be."""
    for found, wanted in zip(as_many(list(got)[: len(want)], len(want)), want, strict=True):
        if wanted is None and found is None:
            continue
        if wanted is None or found is None or kind_of(found) != kind_of(wanted):
            return Problem(mistake, f"{name}: {kind_of(wanted)}", kind_of(found))
        if not close(found, wanted, TOLERANCE):
            expected, shown = largest_difference(wanted, found)
            return Problem(mistake, f"{name}: {expected}", shown)
    return None
