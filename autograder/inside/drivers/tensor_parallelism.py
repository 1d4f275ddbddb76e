"""Drivers of exercise 06: one forward and one backward, on every rank with what it has of the tensors.

They mark when forward has `began` and when it has `turned` into backward, so that a check can tell what was
communicated in which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autograder.inside.moments import mark

SCALE = 3.0  # of the gradient that reaches the cross-entropy: it need not be 1


def differentiate(
    function: Callable,
    x: torch.Tensor,
    arguments: list,
    cotangent: torch.Tensor,
    strided: bool,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """The function's output y, and gradients for that of y; others hold x and the gradient of y as well.

    Args:
        strided: whether the elements of x and of the gradient lie in memory in another order.
    """
    if strided:
        x, cotangent = _strided(x), _strided(cotangent)
    x = x.clone().requires_grad_()
    neighbour = torch.zeros_like(cotangent, requires_grad=True)
    earlier = neighbour * 1  # its backward comes after the function's, with the same gradient
    mark("began")
    y = function(x, *arguments, group=group)
    mark("turned")
    report = {"output": y, "input": x.detach().clone()}
    if not isinstance(y, torch.Tensor) or not y.requires_grad or y.shape != cotangent.shape:
        return report | {"differentiable": isinstance(y, torch.Tensor) and y.requires_grad}
    report["output"] = y.detach().clone()
    (y + earlier).backward(cotangent.clone())
    return report | {
        "differentiable": True,
        "gradient": x.grad,
        "neighbour": neighbour.grad,
    }


def refuse(code: Callable, arguments: list, options: dict, group: dist.ProcessGroup | None = None) -> str:
    """The message of the ValueError that this call raises; empty if there is none."""
    try:
        code(*arguments, **options, group=group)
    except ValueError as error:
        return str(error) or repr(error)
    return ""


def run(
    module_class: Callable,
    arguments: list,
    options: dict,
    state: dict[str, torch.Tensor],
    x: torch.Tensor,
    cotangent: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """Makes a module, loads the state of the whole one, and goes forward and backward once."""
    with _Numels(state.values()) as made:
        module = module_class(*arguments, **options, group=group)
    module.to(device=x.device, dtype=x.dtype)
    parameters = list(module.parameters())
    with made:
        module.load_full(state)
    kept = list(map(id, parameters)) == list(map(id, module.parameters()))
    loaded = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    held = max((_storage_numel(tensor) for tensor in _tensors_of(module)), default=0)
    x = x.clone().requires_grad_()
    mark("began")
    y = module(x)
    mark("turned")
    output = y.detach().clone()
    if y.requires_grad and y.shape == cotangent.shape:
        y.backward(cotangent)
    return {
        "made": made.largest,
        "held": held,
        "kept": kept,
        "loaded": loaded,
        "differentiable": y.requires_grad,
        "output": output,
        "gradient": x.grad,
        "gradients": {name: parameter.grad for name, parameter in module.named_parameters()},
    }


def cross_entropy(
    function: Callable,
    logits: torch.Tensor,
    target: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """The loss, and the gradient of `SCALE` times the loss."""
    logits = logits.clone().requires_grad_()
    mark("began")
    loss = function(logits, target, group=group)
    mark("turned")
    differentiable = isinstance(loss, torch.Tensor) and loss.requires_grad
    report = {"differentiable": differentiable}
    if not differentiable or loss.dim():
        return report | {"loss": loss, "gradient": None}
    (loss * SCALE).backward()
    return report | {
        "loss": loss.detach().clone(),
        "gradient": logits.grad,
    }


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, with its elements in the opposite order of dimensions in memory."""
    dims = list(range(tensor.dim()))[::-1]
    return tensor.permute(dims).contiguous().permute(dims)


class _Numels(TorchDispatchMode):
    """Notes the largest memory, in elements, that operations make; that of `given` tensors is not theirs."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._given = {tensor.untyped_storage().data_ptr() for tensor in given}
        self.largest = 0

    def __torch_dispatch__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if not isinstance(made, torch.Tensor) or made.is_meta:  # which has no memory
                continue
            if made.untyped_storage().data_ptr() not in self._given:
                self.largest = max(self.largest, _storage_numel(made))
        return result


def _storage_numel(tensor: torch.Tensor) -> int:
    """Elements in the memory that a tensor keeps alive, of which it may show only a part."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Every tensor that a module keeps in some attribute."""
    for part in module.modules():
        yield from (held for held in tree_leaves(dict(vars(part))) if isinstance(held, torch.Tensor))
