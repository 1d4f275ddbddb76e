"""What a call to a process group is about: a `Call`, read from its arguments and the reader's line.

`process_group` asks before every operation, so all of this must cost microseconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..trace import Call

_TORCH = str(Path(torch.__file__).parent)
_not_the_readers = (_TORCH, str(Path(__file__).parents[1]))
# By hash: a ReduceOp gives its own in half the time that it takes to give its kind.
_REDUCE_OPS = {hash(kind): name for name, kind in dist.ReduceOp.RedOpType.__members__.items()}
_WAIT_IN_CPP = {str(Path(_TORCH, path)) for path in ("nn/parallel/distributed.py", "distributed/utils.py")}


@dataclass(frozen=True)
class Operation:
    """How to read the arguments of one `ProcessGroup` method."""

    name: str  # the function of torch.distributed that a reader knows
    source: int = 0  # position of the tensors that this rank puts in
    agree: int | None = 0  # position of the tensors whose element count must be equal on all ranks
    rooted: bool = False  # one rank is src or dst
    exchange: bool = False  # each two ranks agree on sizes of their own
    message: bool = False  # from one rank to another
    reduces: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduces", "reduce" in self.name)


OPERATIONS = {
    "allreduce": Operation("all_reduce"),
    "allreduce_coalesced": Operation("all_reduce"),
    "broadcast": Operation("broadcast", rooted=True),
    "reduce": Operation("reduce", rooted=True),
    "allgather": Operation("all_gather", source=1, agree=1),
    "allgather_coalesced": Operation("all_gather", source=1, agree=1),
    "allgather_into_tensor_coalesced": Operation("all_gather_single", source=1, agree=1),
    "_allgather_base": Operation("all_gather_single", source=1, agree=1),
    "all_gather_single": Operation("all_gather_single", source=1, agree=1),
    "all_gather_single_coalesced": Operation("all_gather_single", source=1, agree=1),
    "gather": Operation("gather", source=1, agree=1, rooted=True),
    "scatter": Operation("scatter", source=1, agree=0, rooted=True),
    "reduce_scatter": Operation("reduce_scatter", source=1, agree=1),
    "_reduce_scatter_base": Operation("reduce_scatter_single", source=1, agree=1),
    "reduce_scatter_single": Operation("reduce_scatter_single", source=1, agree=1),
    "reduce_scatter_single_coalesced": Operation("reduce_scatter_single", source=1, agree=1),
    "reduce_scatter_tensor_coalesced": Operation("reduce_scatter_single", source=1, agree=1),
    "alltoall": Operation("all_to_all", source=1, agree=None, exchange=True),
    "alltoall_base": Operation("all_to_all_single", source=1, agree=None, exchange=True),
    "all_to_all_single": Operation("all_to_all_single", source=1, agree=None, exchange=True),
    "barrier": Operation("barrier", agree=None),
    "send": Operation("send", agree=None, message=True),
    "recv": Operation("recv", agree=None, message=True),
    "recv_anysource": Operation("recv", agree=None, message=True),
}


def describe(operation: Operation, group: str, ranks: tuple[int, ...], args: tuple) -> Call:
    """The call that these arguments of an operation make on a group of these ranks."""
    call = call_on(operation.name, group, ranks)
    given = tensors_of(operation, args)
    elements = 0
    for tensor in given:
        elements += tensor.numel()
        call.nbytes += tensor.nbytes
    if given:
        call.shape, call.dtype = tuple(given[0].shape), _dtype_name(given[0].dtype)
    if operation.exchange:
        call.part, call.exchange = (0, call.dtype), _exchange(args, len(ranks))
    elif operation.agree == operation.source:
        call.part = elements, call.dtype
    elif operation.agree is not None:
        call.part = _part(tensors_in(args[operation.agree]))
    if operation.message:
        _describe_message(call, args)
    elif operation.rooted:
        root = args[-1].rootRank
        call.root = ranks[root] if root < len(ranks) else None  # the backend says what is wrong
    if operation.reduces:
        call.reduce_op = _reduce_op_name(args[-1])
    return call


def call_on(op: str, group: str, ranks: tuple[int, ...]) -> Call:
    """A call on a group by the line of the reader's code that runs now, without what its tensors tell."""
    file, line, function = caller(sys._getframe(2))
    return Call(op, group, ranks, file=file, line=line, function=function)


def tensors_of(operation: Operation, args: tuple) -> list[torch.Tensor]:
    """The tensors that this rank puts in."""
    return tensors_in(args[operation.source]) if operation.source < len(args) else []


def _describe_message(call: Call, args: tuple) -> None:
    if len(args) == 3:  # (tensors, peer, tag)
        call.peer, call.tag = call.ranks[args[1]], args[2]
    else:  # recv_anysource: (tensors, tag)
        call.tag = args[1]


def _exchange(args: tuple, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes that this rank gives to, and takes from, each rank of the group."""
    takes, gives = args[0], args[1]
    if isinstance(gives, torch.Tensor):  # (output, input, output splits, input splits, options)
        return _shares(gives, args[3], size), _shares(takes, args[2], size)
    return tuple(tensor.nbytes for tensor in gives), tuple(tensor.nbytes for tensor in takes)


def _shares(tensor: torch.Tensor, splits: Sequence[int], size: int) -> tuple[int, ...]:
    if not splits:
        return (tensor.nbytes // size,) * size
    row = tensor.nbytes // max(1, tensor.shape[0])
    return tuple(rows * row for rows in splits)


def _part(tensors: list[torch.Tensor]) -> tuple[int, str]:
    """Elements and dtype of tensors that must be alike on all ranks."""
    return sum(tensor.numel() for tensor in tensors), _dtype_name(tensors[0].dtype) if tensors else ""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in an argument: a tensor, a list of tensors, or a list of such lists."""
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


def _reduce_op_name(options: Any) -> str:
    """ "SUM" and the like; an old-style call has no options."""
    return _REDUCE_OPS.get(hash(getattr(options, "reduceOp", None)), "")


def pass_over(path: Path) -> None:
    """What lies there is no code of the reader's."""
    global _not_the_readers
    _not_the_readers += (str(path),)


def in_native_code(frame: FrameType) -> bool:
    """Whether a thread is there while C++ code waits for collectives: a backward pass, or DDP's own."""
    return frame.f_code.co_name == "_engine_run_backward" or frame.f_code.co_filename in _WAIT_IN_CPP


def caller(frame: FrameType | None) -> tuple[str, int, str]:
    """File, line and function of the reader's code: the innermost frame that is not passed over."""
    while frame is not None and frame.f_code.co_filename.startswith(_not_the_readers):
        frame = frame.f_back
    if frame is None:  # autograd's own thread: DDP issues its collectives from there
        return "", 0, "backward"
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name  # None between two lines
