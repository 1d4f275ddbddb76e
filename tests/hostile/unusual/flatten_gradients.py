"""Averages all gradients of a dtype at once, as one tensor, by helpers of torch's own."""

from itertools import groupby

from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def dtype_of(parameter):
    return str(parameter.dtype)


def average_gradients(module, group=None):
    wanted = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    for _, some in groupby(sorted(wanted, key=dtype_of), key=dtype_of):
        gradients = [parameter.grad for parameter in some]
        flat = _flatten_dense_tensors(gradients)
        dist.all_reduce(flat, group=group)
        flat /= dist.get_world_size(group)
        for gradient, mean in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):
            gradient.copy_(mean)
