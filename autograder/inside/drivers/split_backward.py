"""Driver of exercise 07's stretch: a linear layer whose backward is cut into two, and what it costs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from autograder.inside.drivers import Code
from autograder.inside.drivers.pipeline_parallelism import Gradients, gradients
from autograder.inside.reports import Report


@dataclass(frozen=True)
class Split(Report):
    """Forwards and backwards of some microbatches, and what `backward_weight` made of them.

    Attributes:
        names: of the parameters.
        before: the parameters' gradients before the first `backward_weight`; `after` each call they follow.
        held: how many inputs are held after each call.
        multiply_adds: of the forwards, the backwards and all calls of `backward_weight`.
        refused: the type of the exception with which one call more is refused; empty if it is not.
        shared: whether a layer of which nothing is pending uses the microbatch of another layer.
    """

    names: list[str]
    outputs: list[torch.Tensor]
    input_gradients: Gradients
    before: Gradients
    after: list[Gradients]
    held: list[int]
    multiply_adds: tuple[int, int, int]
    refused: str
    shared: bool


def split_backward(
    layer_class: Code,
    weights: tuple[torch.Tensor, torch.Tensor | None],
    inputs: list[torch.Tensor],
    frozen: bool,
    is_first: bool,
) -> Split:
    """Do forwards of some microbatches, backwards in the opposite order, and as often `backward_weight`.

    Args:
        is_first: whether the layer is the first of a model, whose inputs require no gradient.
    """
    weight, bias = weights
    layer = layer_class(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    names = [name for name, _ in layer.named_parameters()]
    layer.load_state_dict({"weight": weight} | ({"bias": bias} if bias is not None else {}))
    layer.requires_grad_(not frozen).to(weight.device)
    leaves = [tensor.clone().requires_grad_(not is_first) for tensor in inputs]
    references = [StorageWeakRef(leaf.untyped_storage()) for leaf in leaves]
    with _MultiplyAdds() as forward:
        outputs = [layer(leaf) for leaf in reversed(leaves)][::-1]
    with _MultiplyAdds() as backward:
        for output in outputs:
            output.square().sum().backward()
    plain_outputs, input_gradients = [output.detach() for output in outputs], [leaf.grad for leaf in leaves]
    before, after, held = gradients(layer), [], []
    del leaves, outputs, output
    with _MultiplyAdds() as backward_weight:
        for _ in inputs:
            layer.backward_weight()
            after.append(gradients(layer))
            held.append(sum(not reference.expired() for reference in references))
    counts = (forward.count, backward.count, backward_weight.count)
    refused, shared = _refusal(layer), _share_what_is_pending(layer_class, inputs[0], len(weight))
    return Split(names, plain_outputs, input_gradients, before, after, held, counts, refused, shared)


def _share_what_is_pending(layer_class: Code, inputs: torch.Tensor, width: int) -> bool:
    """Tell whether a layer that has computed nothing gets gradients by the microbatch of another."""
    busy, idle = (
        layer_class(inputs.shape[-1], width, dtype=inputs.dtype).to(inputs.device) for _ in range(2)
    )
    with suppress(Exception):
        busy(inputs.clone().requires_grad_()).sum().backward()
        idle.backward_weight()
    return any(gradient is not None for gradient in gradients(idle))


def _refusal(layer: Any) -> str:
    """Return the type of the exception that a call raises when nothing is left to do."""
    try:
        layer.backward_weight()
    except RuntimeError:
        return RuntimeError.__name__
    except Exception as error:
        return type(error).__name__
    return ""


class _MultiplyAdds(TorchDispatchMode):
    """Counts those of all matrix multiplications, also of a backward."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # in inference mode such an operation comes as a whole, with a multiplication inside
            result = function.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        result = function(*args, **kwargs)
        if function.overloadpacket in _MATRICES:
            left = args[_MATRICES[function.overloadpacket]]
            self.count += result.numel() * left.shape[-1]
        return result


_MATRICES = {  # which argument is the left matrix
    torch.ops.aten.mm: 0,
    torch.ops.aten.bmm: 0,
    torch.ops.aten.mv: 0,
    torch.ops.aten.addmm: 1,
    torch.ops.aten.baddbmm: 1,
    torch.ops.aten.addmv: 1,
}
