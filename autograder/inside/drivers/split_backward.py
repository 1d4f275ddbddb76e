"""Driver of exercise 07's stretch: a linear layer whose backward is cut into two, and what it costs."""

from __future__ import annotations

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from autograder.inside.drivers.pipeline_parallelism import gradients


def split_backward(
    layer_class: type, weights: list[torch.Tensor | None], inputs: list[torch.Tensor], frozen: bool
) -> dict:
    """Forwards of several microbatches, backwards in the opposite order, then as often `backward_weight`.

    Returns:
        Outputs and gradients of the inputs; the parameters' gradients before the first `backward_weight` and
        after each; multiply-adds of the forwards, the backwards and all `backward_weight`; how many inputs
        are held after each; whether one call more is refused.
    """
    weight, bias = weights
    layer = layer_class(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    names = [name for name, _ in layer.named_parameters()]
    layer.load_state_dict({"weight": weight} | ({"bias": bias} if bias is not None else {}))
    layer.requires_grad_(not frozen).to(weight.device)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    held = [StorageWeakRef(leaf.untyped_storage()) for leaf in leaves]
    with _MultiplyAdds() as forward:
        outputs = [layer(leaf) for leaf in reversed(leaves)][::-1]
    with _MultiplyAdds() as backward:
        for output in outputs:
            output.square().sum().backward()
    report = {
        "names": names,
        "outputs": [output.detach() for output in outputs],
        "input_gradients": [leaf.grad for leaf in leaves],
        "before": gradients(layer),
        "after": [],
        "held": [],
    }
    del leaves, outputs, output
    with _MultiplyAdds() as backward_weight:
        for _ in inputs:
            layer.backward_weight()
            report["after"].append(gradients(layer))
            report["held"].append(sum(not reference.expired() for reference in held))
    report["multiply_adds"] = [forward.count, backward.count, backward_weight.count]
    report["refused"] = _refuses(layer)
    return report


def _refuses(layer: nn.Module) -> bool:
    """Whether a call is refused when nothing is left to do."""
    try:
        layer.backward_weight()
    except RuntimeError:
        return True
    return False


class _MultiplyAdds(TorchDispatchMode):
    """Counts those of all matrix multiplications, also of a backward."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        result = function(*args, **(kwargs or {}))
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
