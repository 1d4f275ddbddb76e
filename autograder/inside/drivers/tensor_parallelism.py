"""Drivers of exercise 06: one forward and one backward, on every rank with what it has of the tensors.

They mark when forward has `began` and when it has `turned` into backward, so that a check can tell what was
communicated in which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autograder.inside.drivers import Code, Group, by_columns, memory_of, refusals
from autograder.inside.drivers.calls import USED_AGAIN
from autograder.inside.moments import mark
from autograder.inside.reports import Report

SCALE = 3.0  # of the gradient that reaches the cross-entropy: it need not be 1


@dataclass(frozen=True)
class Differentiated(Report):
    """A function's output and what its input is afterwards, with gradients where it has any.

    Attributes:
        neighbour: of a tensor that was added to the output.
        elsewhere: of the input, through another use of it.
    """

    output: object
    input: torch.Tensor
    differentiable: bool
    gradient: torch.Tensor | None = None
    neighbour: torch.Tensor | None = None
    elsewhere: torch.Tensor | None = None


@dataclass(frozen=True)
class ModuleRun(Report):
    """A module's parameters after `load_full`, and one forward and backward.

    Attributes:
        made, held: elements of each tensor that was made in the constructor or `load_full`, and that is kept.
        kept: whether the parameters are still those of the constructor.
        apart: whether they have other memory than the state dict.
        elsewhere: the gradient of the input through another use of it.
    """

    made: list[int]
    held: list[int]
    kept: bool
    apart: bool
    loaded: dict[str, torch.Tensor]
    differentiable: bool
    output: object
    gradient: torch.Tensor | None
    gradients: dict[str, torch.Tensor | None]
    elsewhere: torch.Tensor | None


@dataclass(frozen=True)
class Loss(Report):
    """The result of a loss function, its arguments afterwards, and the gradient of `SCALE` times the loss."""

    loss: object
    logits: torch.Tensor
    target: torch.Tensor
    differentiable: bool
    gradient: torch.Tensor | None = None


def differentiate(
    function: Code,
    x: torch.Tensor,
    arguments: list[Any],
    cotangent: torch.Tensor,
    strided: bool,
    group: Group = None,
) -> Differentiated:
    """Call the function and go backward; others hold x and the gradient of its output y as well.

    Args:
        strided: whether the elements of x and of the gradient lie in memory in another order.
    """
    if strided:
        x, cotangent = by_columns(x), by_columns(cotangent)
    x = x.clone().requires_grad_()
    neighbour = torch.zeros_like(cotangent, requires_grad=True)
    earlier = neighbour * 1  # its backward comes after the function's, with the same gradient
    mark("began")
    y = function(x, *arguments, group=group)
    mark("turned")
    after = x.detach().clone()
    differentiable = isinstance(y, torch.Tensor) and y.requires_grad
    if not differentiable or y.shape != cotangent.shape:
        return Differentiated(y, after, differentiable)
    output = y.detach().clone()
    (y + earlier).backward(cotangent.clone())
    gradient = x.grad
    return Differentiated(output, after, True, gradient, neighbour.grad, _elsewhere(x))


def refuse(code: Code, arguments: list[Any], options: dict[str, Any], group: Group = None) -> str:
    """Return the message of the ValueError that this call raises; empty if there is none."""
    return refusals.refuse(code, *arguments, **options, group=group)


def run(
    module_class: Code,
    arguments: list[Any],
    options: dict[str, Any],
    state: dict[str, torch.Tensor],
    x: torch.Tensor,
    cotangent: torch.Tensor,
    group: Group = None,
) -> ModuleRun:
    """Make a module, load the state of the whole one, and go forward and backward once."""
    with Numels(state.values()) as made:
        module = module_class(*arguments, **options, group=group)
    module.to(device=x.device, dtype=x.dtype)
    parameters = list(module.parameters())
    with made:
        module.load_full(state)
    kept = list(map(id, parameters)) == list(map(id, module.parameters()))
    apart = {memory_of(tensor) for tensor in state.values()}.isdisjoint(map(memory_of, module.parameters()))
    loaded = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    held = sorted({_storage_numel(tensor) for tensor in _tensors_of(module)})
    x = x.clone().requires_grad_()
    mark("began")
    y = module(x)
    mark("turned")
    differentiable = isinstance(y, torch.Tensor) and y.requires_grad
    output = y.detach().clone() if differentiable else y
    if differentiable and y.shape == cotangent.shape:
        y.backward(cotangent)
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    gradient = x.grad
    return ModuleRun(
        sorted(made.numels),
        held,
        kept,
        apart,
        loaded,
        differentiable,
        output,
        gradient,
        gradients,
        _elsewhere(x),
    )


def run_again(
    module_class: Code,
    earlier: torch.Tensor,
    arguments: list[Any],
    options: dict[str, Any],
    state: dict[str, torch.Tensor],
    x: torch.Tensor,
    cotangent: torch.Tensor,
    group: Group = None,
) -> object:
    """Take a module that has been used with an earlier input, and run it."""
    module = module_class(*arguments, **options, group=group)
    module.to(device=earlier.device, dtype=earlier.dtype)
    module.load_full(state)
    module(earlier).sum().backward()
    module.zero_grad()
    mark(USED_AGAIN)
    return run(lambda *_, **__: module, arguments, options, state, x, cotangent, group)


def _elsewhere(x: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of x, which is x itself, through a use that has nothing to do with the function."""
    x.grad = None
    (x * 1).backward(x.detach())
    return x.grad


def cross_entropy(function: Code, logits: torch.Tensor, target: torch.Tensor, group: Group = None) -> Loss:
    """Compute the loss, and the gradient of `SCALE` times the loss."""
    logits = logits.clone().requires_grad_()
    mark("began")
    loss = function(logits, target, group=group)
    mark("turned")
    after = logits.detach().clone(), target.clone()
    differentiable = isinstance(loss, torch.Tensor) and loss.requires_grad
    if not differentiable or loss.dim():
        return Loss(loss, *after, differentiable)
    (loss * SCALE).backward()
    return Loss(loss.detach().clone(), *after, True, logits.grad)


class Numels(TorchDispatchMode):
    """Notes how much memory, in elements, operations make for each tensor.

    Args:
        given: tensors whose memory is not theirs.
        floating: whether numbers alone count, as where messages are bytes on their way.
    """

    def __init__(self, given: Iterable[torch.Tensor], floating: bool = False) -> None:
        super().__init__()
        self._floating = floating
        self._given = set(map(memory_of, given))
        self.numels: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if not isinstance(made, torch.Tensor) or made.is_meta:  # which has no memory
                continue
            if self._floating and not made.is_floating_point():
                continue
            if memory_of(made) not in self._given:
                self.numels.add(_storage_numel(made))
        return result


def _storage_numel(tensor: torch.Tensor) -> int:
    """Count the elements in the memory that a tensor keeps alive, of which it may show only a part."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Give every tensor that a module keeps in some attribute."""
    for part in module.modules():
        yield from (held for held in tree_leaves(dict(vars(part))) if isinstance(held, torch.Tensor))
