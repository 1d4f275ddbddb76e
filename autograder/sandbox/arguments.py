"""The arguments of calls to a process group, as plain data that `wire` sends, and back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

MOST_BYTES = 1 << 30  # of a tensor's memory, with its gaps
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
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def to_plain(value: Any, unread: frozenset[int] = frozenset()) -> Any:
    """What `wire` can send of an argument.

    Args:
        value: the argument, or a part of it.
        unread: ids of tensors of which only the form is sent, because nobody reads what they hold.
    """
    match value:
        case torch.Tensor():
            return _plain_tensor(value, id(value) in unread)
        case list() | tuple():
            return [to_plain(item, unread) for item in value]
        case timedelta():
            return {"seconds": value.total_seconds()}
        case dist.ReduceOp() | dist.ReduceOp.RedOpType():
            return {"reduce": next(name for name, kind in _REDUCE_OPS.items() if value == kind)}
        case _ if type(value).__name__ in _OPTIONS:
            fields = {name: to_plain(getattr(value, name)) for name in _FIELDS if hasattr(value, name)}
            return {"options": type(value).__name__, "fields": fields}
    return value


def from_plain(plain: Any) -> Any:
    """The argument; a tensor of which only the form was sent holds anything.

    Raises:
        ValueError, TypeError, KeyError, RuntimeError: it is none.
    """
    match plain:
        case {"tensor": torch.Tensor() as dense, "stride": stride}:
            return dense if stride is None else _strided(dense.shape, stride, dense.dtype).copy_(dense)
        case {"shape": list(shape), "stride": list(stride), "dtype": str(dtype)}:
            return _strided(shape, stride, _DTYPES[dtype])
        case {"seconds": float(seconds)}:
            return timedelta(seconds=seconds)
        case {"reduce": str(name)}:
            return _REDUCE_OPS[name]
        case {"options": str(name), "fields": dict(fields)}:
            options = _OPTIONS[name]()
            for field in fields.keys() & set(_FIELDS):
                setattr(options, field, from_plain(fields[field]))
            return options
        case list():
            return [from_plain(item) for item in plain]
        case None | bool() | int() | float() | str():
            return plain
    raise TypeError("no argument of a call")


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in an argument."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def _plain_tensor(value: torch.Tensor, only_its_form: bool) -> dict[str, Any]:
    value = value.detach().as_subclass(torch.Tensor)
    if only_its_form:
        return {"shape": list(value.shape), "stride": list(value.stride()), "dtype": str(value.dtype)}
    return {"tensor": value, "stride": None if value.is_contiguous() else list(value.stride())}


def _strided(shape: list[int], stride: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor with the same gaps: Gloo refuses some, and whoever calls it is to see that."""
    elements = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True) if size)
    if elements * dtype.itemsize > MOST_BYTES or min(shape, default=0) < 0 or min(stride, default=0) < 0:
        raise ValueError("a tensor that is too large")
    return torch.empty_strided(shape, stride, dtype=dtype)
