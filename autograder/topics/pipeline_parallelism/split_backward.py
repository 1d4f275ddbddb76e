"""Check of exercise 07's stretch: a linear layer whose backward is cut into two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from autograder.inside.drivers import split_backward as drivers
from autograder.inside.drivers.pipeline_parallelism import gradients
from autograder.inside.drivers.split_backward import Split
from autograder.inside.reports import as_many
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Outcome
from autograder.kit.values import close, kind_of, largest_difference
from autograder.topics.pipeline_parallelism import mistakes
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.reference_schedules import in_words
from fourranks.naming import counted

TOLERANCE = 1e-9  # of float64, for another order of summation
SHAPES = (  # of an input, width of the output, bias
    ((3, 4), 6, True),
    ((1, 4), 2, False),
    ((2, 3, 4), 5, True),
    ((4,), 3, True),
)
BIAS = {True: "a bias", False: "no bias"}
FROZEN, FIRST = "frozen", "inputs without a gradient"


@check("SplitBackwardLinear", banned=BANNED)
def split_backward_linear(
    code: Code, shapes: Sequence[tuple[tuple[int, ...], int, bool]] = SHAPES, seed: int = 0
) -> Cases:
    """Check `SplitBackwardLinear`: two backwards that together are those of `nn.Linear`, at the same price.

    Args:
        shapes: of the input, with the width of the output, and whether there is a bias.
    """
    draws = Draws(seed)
    for shape, width, bias in shapes:
        for count, special in ((1, ""), (3, ""), (2, FROZEN), (2, FIRST)):
            split = _SplitBackward.draw(shape, width, bias, count, special, draws)
            yield _SplitTrial(
                title=", ".join(filter(None, (f"{in_words(count)} of {shape}", BIAS[bias], special))),
                inputs=[(split.weights, split.inputs, special == FROZEN, special == FIRST)],
                driver=drivers.split_backward,
                verify=split.verify,
                size=count * (special != FROZEN),
                bias=bias,
                special=special,
            )


@dataclass(frozen=True, kw_only=True)
class _SplitTrial(Trial):
    """A trial whose failures may have in common what is so of its layer."""

    patterns: ClassVar = mistakes.SPLIT_PATTERNS

    bias: bool
    special: str


@dataclass(frozen=True)
class _SplitBackward:
    """Microbatches for one layer, and what has to come of them."""

    weights: tuple[torch.Tensor, torch.Tensor | None]
    inputs: list[torch.Tensor]
    special: str

    @classmethod
    def draw(
        cls, shape: tuple[int, ...], width: int, bias: bool, count: int, special: str, draws: Draws
    ) -> _SplitBackward:
        def normal(*shape: int) -> torch.Tensor:
            return draws.randn(shape, torch.float64)

        weights = normal(width, shape[-1]), normal(width) if bias else None
        return cls(weights, [normal(*shape) for _ in range(count)], special)

    def verify(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        (seen,) = (outcome.value for outcome in outcomes if outcome)
        width, inner = self.weights[0].shape
        layer = nn.Linear(inner, width, bias=self.weights[1] is not None).double()
        with torch.no_grad():
            for parameter, weight in zip(layer.parameters(), self.weights, strict=False):
                if weight is not None:
                    parameter.copy_(weight)
        layer.requires_grad_(self.special != FROZEN)
        return (
            self._wrong_names(layer, seen)
            or self._shared(seen)
            or self._wrong_tensors(layer, seen)
            or self._wrong_price(seen)
            or self._wrong_memory(seen)
        )

    def _wrong_names(self, layer: nn.Linear, seen: Split) -> Problem | None:
        want = [name for name, _ in layer.named_parameters()]
        if seen.names == want:
            return None
        return Problem(mistakes.OTHER_PARAMETERS, f"the parameters of nn.Linear: {want}", f"{seen.names}")

    def _shared(self, seen: Split) -> Problem | None:
        if not seen.shared:
            return None
        expected = "no gradients of a second layer, of which nothing is pending, after its backward_weight()"
        return Problem(mistakes.SHARED_BY_LAYERS, expected, "those of the first layer's microbatch")

    def _wrong_tensors(self, layer: nn.Linear, seen: Split) -> Problem | None:
        reported = (seen.outputs, seen.input_gradients, seen.after)
        outputs, input_gradients, after = (as_many(each, len(self.inputs)) for each in reported)
        for at, inputs in enumerate(self.inputs):
            leaf = inputs.clone().requires_grad_(self.special != FIRST)
            output = layer(leaf)
            output.square().sum().backward()
            for kind, name, got, want in (
                (mistakes.WRONG_OUTPUTS, "output", outputs[at], output.detach()),
                (mistakes.WRONG_INPUT_GRADIENTS, "input's gradient", input_gradients[at], leaf.grad),
            ):
                if not _alike(got, want):
                    return _differing(kind, f"microbatch {at}, {name}", got, want)
            if any(gradient is not None for gradient in seen.before):
                expected = "no gradients of the parameters before backward_weight()"
                return Problem(mistakes.NOT_SPLIT, expected, "they are there after the backward")
            wanted, found = gradients(layer), as_many(after[at], len(seen.names))
            for which, (got, want) in enumerate(zip(found, wanted, strict=True)):
                if not _alike(got, want):
                    name = f"{('weight', 'bias')[which]}.grad"
                    when = f"after {at + 1} of {len(self.inputs)} backward_weight()"
                    return _differing(mistakes.WRONG_WEIGHT_GRADIENTS, f"{name} {when}", got, want)
        return None

    def _wrong_price(self, seen: Split) -> Problem | None:
        one = sum(inputs.numel() for inputs in self.inputs) * len(self.weights[0])  # a matrix multiplication
        limits = (one, one, 0 if self.special == FROZEN else one)
        names = ("forward", "backward", "backward_weight")
        for name, limit, got in zip(names, limits, seen.multiply_adds, strict=True):
            if got > limit:
                expected = f"at most {counted(limit, 'multiply-add')} in {name}"
                kind = mistakes.COMPUTED_TWICE if limit else mistakes.FROZEN_COMPUTED
                return Problem(kind, expected, f"{got:,}")
        return None

    def _wrong_memory(self, seen: Split) -> Problem | None:
        for done, held in enumerate(seen.held, 1):
            left = len(self.inputs) - done
            if held > left:
                expected = f"inputs of {in_words(left)} held after {done} backward_weight()"
                return Problem(mistakes.INPUTS_KEPT, expected, f"{held}")
        if seen.refused != RuntimeError.__name__:
            expected = "a RuntimeError when no microbatch waits"
            return Problem(mistakes.NOTHING_LEFT_TO_DO, expected, seen.refused or "no exception")
        return None


def _alike(got: torch.Tensor | None, want: torch.Tensor | None) -> bool:
    return got is want if got is None or want is None else close(got, want, TOLERANCE)


def _differing(mistake: Mistake, name: str, got: torch.Tensor | None, want: torch.Tensor | None) -> Problem:
    if got is None or want is None or kind_of(got) != kind_of(want):
        return Problem(mistake, f"{name}: {kind_of(want)}", kind_of(got))
    expected, shown = largest_difference(want, got)
    return Problem(mistake, f"{name}: {expected}", shown)
