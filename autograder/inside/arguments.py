"""The arguments of calls to a process group as plain data and tensors, for `frames`, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from autograder.inside.frames import DEFAULT_LIMITS, dtype_of

_OPTIONS = {
    kind.__name__: kind
    for kind in (
        c10d.AllgatherOptions,
        c10d.AllreduceCoalescedOptions,
        c10d.AllreduceOptions,
        c10d.AllToAllOptions,
        c10d.BarrierOptions,
        c10d.BroadcastOptions,
        c10d.GatherOptions,
        c10d.ReduceOptions,
        c10d.ReduceScatterOptions,
        c10d.ScatterOptions,
    )
}
_FIELDS = ("reduceOp", "rootRank", "rootTensor", "timeout", "asyncOp")
_REDUCE_OPS = dist.ReduceOp.RedOpType.__members__


def to_plain(value: Any, sent: list[torch.Tensor], unread: frozenset[int] = frozenset()) -> Any:
    """Return an argument, or a part of it, as plain data.

    Args:
        sent: gets the tensors in it, to be sent along.
        unread: ids of tensors of which only the form is sent, because what they hold is not read.
    """
    match value:
        case torch.Tensor():
            return _plain_tensor(value, sent, id(value) in unread)
        case list() | tuple():
            return [to_plain(item, sent, unread) for item in value]
        case timedelta():
            return {"seconds": value.total_seconds()}
        case dist.ReduceOp() | dist.ReduceOp.RedOpType():
            return {"reduce": next(name for name, kind in _REDUCE_OPS.items() if value == kind)}
        case _ if type(value).__name__ in _OPTIONS:
            fields = {name: to_plain(getattr(value, name), sent) for name in _FIELDS if hasattr(value, name)}
            return {"options": type(value).__name__, "fields": fields}
    return value


def from_plain(plain: Any, sent: Sequence[torch.Tensor]) -> Any:
    """Return the argument; a tensor of which only the form was sent holds zeros.

    Raises:
        ValueError, TypeError, LookupError, RuntimeError: it is none.
    """
    match plain:
        case {"tensor": int(place), "stride": None}:
            return sent[place]
        case {"tensor": int(place), "stride": list(stride)}:
            dense = sent[place]
            strided = _strided(dense.shape, stride, dense.dtype)
            _without_repeats(strided, stride).copy_(_without_repeats(dense, stride))
            return strided
        case {"shape": list(shape), "stride": list(stride), "dtype": name}:
            return _strided(shape, stride, dtype_of(name))
        case {"seconds": float(seconds)}:
            return timedelta(seconds=seconds)
        case {"reduce": str(name)}:
            return _REDUCE_OPS[name]
        case {"options": str(name), "fields": dict(fields)}:
            options = _OPTIONS[name]()
            for field in fields.keys() & set(_FIELDS):
                setattr(options, field, from_plain(fields[field], sent))
            return options
        case list():
            return [from_plain(item, sent) for item in plain]
        case None | bool() | int() | float() | str():
            return plain
    raise TypeError("no argument of a call")


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a tensor holds, without gaps, as a plain tensor of the CPU."""
    return tensor.detach().as_subclass(torch.Tensor).cpu().resolve_conj().resolve_neg().contiguous()


def _plain_tensor(value: torch.Tensor, sent: list[torch.Tensor], only_its_form: bool) -> dict[str, Any]:
    if value.is_quantized:  # frames have no form for it, and Gloo has no operation
        raise NotImplementedError("Gloo takes no quantized tensors")
    if only_its_form:
        return {"shape": list(value.shape), "stride": list(value.stride()), "dtype": str(value.dtype)}
    sent.append(dense(value))
    return {"tensor": len(sent) - 1, "stride": None if value.is_contiguous() else list(value.stride())}


def _strided(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros with the same gaps: Gloo refuses some, which its caller is to see.

    Not just any memory: a rank gets back what a message does not fill, and could read what others have sent.
    And memory for every element, also where some are the same: Gloo reads and writes them one after another.
    """
    elements = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True) if size)
    elements = max(elements, math.prod(shape))
    if elements * dtype.itemsize > DEFAULT_LIMITS.nbytes or min((*shape, *stride), default=0) < 0:
        raise ValueError("a tensor that is too large")
    return torch.zeros(elements, dtype=dtype).as_strided(shape, stride)


def _without_repeats(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Return the part of a tensor in which each place in memory occurs once, if it has this stride.

    What `expand` returns, and so the gradient of `sum`, repeats its elements.
    """
    for dimension, step in enumerate(stride):
        if step == 0 and tensor.size(dimension) > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor
