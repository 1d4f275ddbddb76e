"""Describes a call to a process group: a `Call`, read from its arguments and the reader's line.

`process_group` asks before every operation, so all of this must cost microseconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..protocol.calls import Call
from .frames import of_backward_pass, own_caller
from .methods import Arguments, Method

_STRIDED = torch.strided
_OLDER_NAMES = ("all_gather_into_tensor", "gather_into_tensor", "reduce_scatter_tensor")  # of the ..._single
# Functions that take objects; by which collectives they communicate them differs from one torch to another.
_OF_OBJECTS = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list")
# By hash: a ReduceOp gives its own in half the time that it takes to give its kind.
_REDUCE_OPS = {hash(kind): name for name, kind in dist.ReduceOp.RedOpType.__members__.items()}


def describe(method: Method, call: Call, arguments: Arguments) -> Call | None:
    """Return the call of a method with what its arguments tell.

    None if the arguments cannot be described. A record must never be the reason that a call fails: such a
    call goes to the backend as it is, which refuses it in its own words.
    """
    try:
        return _describe(method, call, arguments)
    except Exception:
        return None


def _describe(method: Method, call: Call, arguments: Arguments) -> Call | None:
    ranks, given = call.ranks, tensors_in(arguments.input)
    if method.message and [tensor.layout for tensor in given] != [torch.strided]:
        return None
    elements = 0
    for tensor in given:
        elements += tensor.numel()
        call.nbytes += _nbytes(tensor)
    if shown := given or tensors_in(arguments.output):  # the part that a rank takes from a scatter
        call.shape, call.dtype = tuple(shown[0].shape), _dtype_name(shown[0].dtype)
    if method.exchange:
        call.part, call.exchange = (0, call.dtype), _exchange(arguments, len(ranks))
    elif method.agree == "input":
        call.part = elements, call.dtype
    elif method.agree:
        call.part = _part(tensors_in(arguments.output))
    if method.message or method.rooted:
        named = method.named_rank(arguments)
        if named is None:  # a receive from any source
            call.tag = arguments.tag
        elif not 0 <= named < len(ranks):
            return None
        elif method.rooted:
            call.root = ranks[named]
        else:
            call.peer, call.tag = ranks[named], arguments.tag
    if method.reduces:
        call.reduce_op = _REDUCE_OPS.get(hash(arguments.reduce_op), "")
    return call


def call_on(op: str, group: str, ranks: tuple[int, ...]) -> Call:
    """Return a call on a group by the reader's line that runs now, without what its tensors tell."""
    found = own_caller(sys._getframe(1).f_back)
    if not found.at.file and (waiting := of_backward_pass()) is not None:  # only torch's code runs here
        found = own_caller(waiting)._replace(function=found.function)
    (file, line, function), callers, through, called = found
    call = Call(op, group, ranks, file=file, line=line, function=function, callers=callers, through=through)
    if called in _OF_OBJECTS:
        call.op, call.called = op.removesuffix("_single"), called
    elif called in _OLDER_NAMES:
        call.called = called
    return call


def _exchange(arguments: Arguments, size: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the bytes that this rank gives to, and takes from, each rank of the group.

    None if they are not shared out among all ranks; the backend says what is wrong.

    Raises:
        ValueError: it takes larger elements than it gives. Gloo then reads as many bytes as these have, and
            so what lies beyond the tensor.
    """
    takes, gives = arguments.output, arguments.input
    if isinstance(gives, torch.Tensor):
        if takes.element_size() > gives.element_size():
            raise ValueError("larger elements to take than to give")
        shares = _shares(gives, arguments.input_splits, size), _shares(takes, arguments.output_splits, size)
    else:
        shares = tuple(map(_nbytes, gives)), tuple(map(_nbytes, takes))
    return shares if all(len(each) == size for each in shares) else None


def _shares(tensor: torch.Tensor, splits: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the bytes of each rank's share of a tensor; empty if the splits do not add up to it.

    Raises:
        ValueError: a share is negative. Gloo copies beyond the tensor then.
    """
    if min(splits, default=0) < 0:
        raise ValueError("a negative share")
    if not splits:
        return (tensor.nbytes // size,) * size
    rows = tensor.shape[0] if tensor.dim() else 0
    row = tensor.nbytes // max(1, rows)
    return tuple(share * row for share in splits) if sum(splits) == rows else ()


def _nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor stores: of a sparse one, its values and their indices."""
    layout = tensor.layout
    if layout is _STRIDED:
        return tensor.nbytes
    stored: tuple[torch.Tensor, ...]
    match layout:
        case torch.sparse_coo:
            stored = tensor._indices(), tensor._values()
        case torch.sparse_csr | torch.sparse_bsr:
            stored = tensor.crow_indices(), tensor.col_indices(), tensor.values()
        case torch.sparse_csc | torch.sparse_bsc:
            stored = tensor.ccol_indices(), tensor.row_indices(), tensor.values()
        case _:
            return tensor.numel() * tensor.element_size()
    return sum(part.nbytes for part in stored)


def _part(tensors: list[torch.Tensor]) -> tuple[int, str]:
    """Return elements and dtype of tensors that must be alike on all ranks."""
    return sum(tensor.numel() for tensor in tensors), _dtype_name(tensors[0].dtype) if tensors else ""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return every tensor in an argument: a tensor, a list of tensors, or a list of such lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, (list, tuple)):
        return []
    if value and isinstance(value[0], torch.Tensor):
        return list(value)
    return [tensor for item in value for tensor in tensors_in(item)]


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
