"""Check of exercise 07's stretch: a linear layer whose backward is cut into two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from autograder.inside.drivers import split_backward as drivers
from autograder.inside.drivers.pipeline_parallelism import gradients
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, counted
from autograder.kit.student import Function
from autograder.kit.values import close, kind_of, number
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.mistakes import (
    COMPUTED_TWICE,
    INPUTS_KEPT,
    NOT_SPLIT,
    NOTHING_LEFT_TO_DO,
    OTHER_PARAMETERS,
    WRONG_INPUT_GRADIENTS,
    WRONG_OUTPUTS,
    WRONG_WEIGHT_GRADIENTS,
)
from autograder.topics.pipeline_parallelism.reference_schedules import in_words

TOLERANCE = 1e-9  # of float64, for another order of summation
SHAPES = (  # of an input, width of the output, bias
    ((3, 4), 6, True),
    ((1, 4), 2, False),
    ((2, 3, 4), 5, True),
    ((4,), 3, True),
)

Gradients = list[torch.Tensor | None]


def split_backward_linear(
    code: Callable | Function, shapes: Sequence[tuple[tuple[int, ...], int, bool]] = SHAPES, seed: int = 0
) -> None:
    """Checks `SplitBackwardLinear`: two backwards that together are those of `nn.Linear`, at the same price.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("SplitBackwardLinear", code, _splitting(shapes, Draws(seed)), seed, BANNED)


def _splitting(shapes: Sequence[tuple], draws: Draws) -> Iterator[Trial]:
    for shape, width, bias in shapes:
        for count, frozen in ((1, False), (3, False), (2, True)):
            split = _Split.draw(shape, width, bias, count, frozen, draws)
            title = f"{in_words(count)} of {shape}, {'a' if bias else 'no'} bias{', frozen' * frozen}"
            yield Trial(
                title=title,
                inputs=[(split.weights, split.inputs, frozen)],
                driver=drivers.split_backward,
                verify=lambda outcomes, split=split: split.verify(outcomes[0].value),
                size=count * (not frozen),
            )


@dataclass(frozen=True)
class _Split:
    """Microbatches for one layer, and what has to come of them."""

    weights: list[torch.Tensor | None]
    inputs: list[torch.Tensor]
    frozen: bool

    @classmethod
    def draw(cls, shape: tuple, width: int, bias: bool, count: int, frozen: bool, draws: Draws) -> _Split:
        def normal(*shape: int) -> torch.Tensor:
            return draws.randn(shape, torch.float64)

        weights = [normal(width, shape[-1]), normal(width) if bias else None]
        return cls(weights, [normal(*shape) for _ in range(count)], frozen)

    def verify(self, value: dict) -> Problem | None:
        layer = nn.Linear(*reversed(self.weights[0].shape), bias=self.weights[1] is not None).double()
        with torch.no_grad():
            for parameter, weight in zip(layer.parameters(), self.weights, strict=False):
                parameter.copy_(weight)
        layer.requires_grad_(not self.frozen)
        return (
            self._wrong_names(layer, value)
            or self._wrong_tensors(layer, value)
            or self._wrong_price(value)
            or self._wrong_memory(value)
        )

    def _wrong_names(self, layer: nn.Linear, value: dict) -> Problem | None:
        want = [name for name, _ in layer.named_parameters()]
        if value["names"] == want:
            return None
        return Problem(OTHER_PARAMETERS, f"the parameters of nn.Linear: {want}", f"{value['names']}")

    def _wrong_tensors(self, layer: nn.Linear, value: dict) -> Problem | None:
        none = [None] * len(value["before"])
        for at, inputs in enumerate(self.inputs):
            leaf = inputs.clone().requires_grad_()
            output = layer(leaf)
            output.square().sum().backward()
            for kind, name, got, want in (
                (WRONG_OUTPUTS, "output", value["outputs"][at], output.detach()),
                (WRONG_INPUT_GRADIENTS, "input's gradient", value["input_gradients"][at], leaf.grad),
            ):
                if got is None or not _close(got, want):
                    return _differing(kind, f"microbatch {at}, {name}", got, want)
            if not _all_close(value["before"], none):
                got = "they are there after the backward"
                return Problem(NOT_SPLIT, "no gradients of the parameters before backward_weight()", got)
            if not _all_close(value["after"][at], gradients(layer)):
                return self._wrong_weights(layer, value, at)
        return None

    def _wrong_weights(self, layer: nn.Linear, value: dict, at: int) -> Problem:
        pairs = enumerate(zip(value["after"][at], gradients(layer), strict=True))
        which, got, want = next((n, a, b) for n, (a, b) in pairs if not _all_close([a], [b]))
        name = f"{('weight', 'bias')[which]}.grad after {at + 1} of {len(self.inputs)} backward_weight()"
        return _differing(WRONG_WEIGHT_GRADIENTS, name, got, want)

    def _wrong_price(self, value: dict) -> Problem | None:
        one = sum(inputs.numel() for inputs in self.inputs) * len(self.weights[0])  # a matrix multiplication
        limits = (one, one, 0 if self.frozen else one)
        names = ("forward", "backward", "backward_weight")
        for name, limit, got in zip(names, limits, value["multiply_adds"], strict=True):
            if got > limit:
                expected = f"at most {counted(limit, 'multiply-add')} in {name}"
                return Problem(COMPUTED_TWICE, expected, f"{got:,}")
        return None

    def _wrong_memory(self, value: dict) -> Problem | None:
        for done, held in enumerate(value["held"], 1):
            left = len(self.inputs) - done
            if held > left:
                expected = f"inputs of {in_words(left)} held after {done} backward_weight()"
                return Problem(INPUTS_KEPT, expected, f"{held}")
        if not value["refused"]:
            return Problem(NOTHING_LEFT_TO_DO, "a RuntimeError when no microbatch waits", "no exception")
        return None


def _close(got: torch.Tensor, want: torch.Tensor) -> bool:
    return close(got, want, TOLERANCE)


def _all_close(got: Gradients, want: Gradients) -> bool:
    return len(got) == len(want) and all(
        a is b if a is None or b is None else _close(a, b) for a, b in zip(got, want, strict=True)
    )


def _differing(mistake: Mistake, name: str, got: object, want: torch.Tensor | None) -> Problem:
    if kind_of(got) != kind_of(want):
        return Problem(mistake, f"{name}: {kind_of(want)}", kind_of(got))
    worst = int((got - want).abs().nan_to_num(torch.inf).argmax())
    return Problem(mistake, f"{name}: [{worst}] = {number(want, worst)}", number(got, worst))
