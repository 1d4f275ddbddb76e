"""The communicating methods of torch's `ProcessGroup`, and the forms in which each may be called.

The functions of `torch.distributed` pass an options object: `group.broadcast([tensor], options)`. Others may
write `group.broadcast(tensor, root=1)`. `read` tells what the arguments of either form mean.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


class Arguments:
    """The arguments of one call, by their meaning.

    Attributes:
        input: tensors that this rank puts in; the buffer of a receive.
        output: tensors for the result, where those of `input` do not take it.
        input_splits: rows for each rank, of an all-to-all; empty for equal shares.
        output_splits: rows from each rank.
        peer: group rank of a message's other end; None for any source.
        tag: of a message.
        root: group rank of the src or dst of a rooted collective, if not in `options`.
        op: how values are combined, if not in `options`.
        options: object with the settings of this call, if there is one.
        timeout: of this call.
    """

    input: Any = None
    output: Any = None
    input_splits: Any = ()
    output_splits: Any = ()
    peer: int | None = None
    tag: int = 0
    root: int = 0
    op: Any = dist.ReduceOp.SUM
    options: Any = None
    timeout: timedelta | None = None

    @property
    def result(self) -> Any:
        """The tensors that take the result."""
        return self.input if self.output is None else self.output

    @property
    def root_rank(self) -> int:
        return getattr(self.options, "rootRank", self.root)

    @property
    def reduce_op(self) -> Any:
        return getattr(self.options, "reduceOp", self.op)

    @property
    def limit(self) -> timedelta | None:
        """The timeout that this call was given, less than zero for none."""
        return getattr(self.options, "timeout", self.timeout)

    @property
    def synchronous(self) -> bool:
        """Whether torch's function was called with `async_op=False`: it waits for the handle itself."""
        return not getattr(self.options, "asyncOp", True)


@dataclass(frozen=True)
class Method:
    """One method of `ProcessGroup`."""

    name: str  # the function of torch.distributed that a reader knows
    forms: tuple[tuple[str, ...], ...]  # torch's names of the parameters, in each overload
    agree: str = "input"  # the tensors whose element count must be equal on all ranks; "" for none
    rooted: bool = False  # one rank is src or dst
    exchange: bool = False  # each two ranks agree on sizes of their own
    message: bool = False  # from one rank to another
    reduces: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduces", "reduce" in self.name)

    def named_rank(self, arguments: Arguments) -> int | None:
        """Return the group rank that a call names as its root or as the other end of its message."""
        return arguments.root_rank if self.rooted else arguments.peer


def _forms(*overloads: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(overload.split()) for overload in overloads)


_SINGLE = _forms("output input opts")
_REDUCE_SINGLE = _forms("outputTensor inputTensor opts")
_COALESCED = _forms("outputs inputs opts")
_SPLIT = _forms(
    "output input output_split_sizes input_split_sizes opts",
    "output input output_split_sizes input_split_sizes timeout",
)
_ALL_REDUCE = _forms("tensors opts", "tensors op timeout", "tensor op timeout")
_BROADCAST = _forms("tensors opts", "tensor root timeout")
_REDUCE = _forms("tensors opts", "tensor root op timeout")
_ALL_GATHER = _forms("output_tensors input_tensors opts", "output_tensors input_tensor timeout")
_GATHER = _forms("output_tensors input_tensors opts", "output_tensors input_tensor root timeout")
_SCATTER = _forms("output_tensors input_tensors opts", "output_tensor input_tensors root timeout")
_REDUCE_SCATTER = _forms("output_tensors input_tensors opts", "output input op timeout")
_ALL_TO_ALL = _forms("output_tensors input_tensors opts")

METHODS = {
    "allreduce": Method("all_reduce", _ALL_REDUCE),
    "allreduce_coalesced": Method("all_reduce", _forms("tensors opts")),
    "broadcast": Method("broadcast", _BROADCAST, rooted=True),
    "reduce": Method("reduce", _REDUCE, rooted=True),
    "allgather": Method("all_gather", _ALL_GATHER),
    "allgather_coalesced": Method("all_gather", _forms("output_lists input_list opts")),
    "allgather_into_tensor_coalesced": Method("all_gather_single", _COALESCED),
    "_allgather_base": Method("all_gather_single", _SINGLE),
    "all_gather_single": Method("all_gather_single", _SINGLE),
    "all_gather_single_coalesced": Method("all_gather_single", _COALESCED),
    "gather": Method("gather", _GATHER, rooted=True),
    "gather_single": Method("gather_single", _SINGLE, rooted=True),  # since torch 2.15, like the next one
    "gather_into_tensor": Method("gather_single", _SINGLE, rooted=True),
    "scatter": Method("scatter", _SCATTER, agree="output", rooted=True),
    "reduce_scatter": Method("reduce_scatter", _REDUCE_SCATTER),
    "_reduce_scatter_base": Method("reduce_scatter_single", _REDUCE_SINGLE),
    "reduce_scatter_single": Method("reduce_scatter_single", _REDUCE_SINGLE),
    "reduce_scatter_single_coalesced": Method("reduce_scatter_single", _COALESCED),
    "reduce_scatter_tensor_coalesced": Method("reduce_scatter_single", _COALESCED),
    "alltoall": Method("all_to_all", _ALL_TO_ALL, agree="", exchange=True),
    "alltoall_base": Method("all_to_all_single", _SPLIT, agree="", exchange=True),
    "all_to_all_single": Method("all_to_all_single", _SPLIT, agree="", exchange=True),
    "barrier": Method("barrier", _forms("opts", "timeout"), agree=""),
    "send": Method("send", _forms("tensors dstRank tag"), agree="", message=True),
    "recv": Method("recv", _forms("tensors srcRank tag"), agree="", message=True),
    "recv_anysource": Method("recv", _forms("tensors tag"), agree="", message=True),
}

_OPTIONS = tuple(kind for name, kind in vars(c10d).items() if name.endswith("Options"))
_REDUCE_OPS = (dist.ReduceOp, dist.ReduceOp.RedOpType)
# Of each parameter the field of `Arguments`, the kind of value that it takes, and whether it has a default.
_PARAMETERS: dict[str, tuple[str, Any, bool]] = {
    **dict.fromkeys(("tensors", "input_tensors", "input_list", "input", "inputs"), ("input", object, False)),
    **dict.fromkeys(("tensor", "input_tensor", "inputTensor"), ("input", torch.Tensor, False)),
    **dict.fromkeys(("output_tensors", "output_lists", "output", "outputs"), ("output", object, False)),
    **dict.fromkeys(("output_tensor", "outputTensor"), ("output", torch.Tensor, False)),
    "input_split_sizes": ("input_splits", object, False),
    "output_split_sizes": ("output_splits", object, False),
    **dict.fromkeys(("dstRank", "srcRank"), ("peer", int, False)),
    "tag": ("tag", int, False),
    "root": ("root", int, False),
    "op": ("op", _REDUCE_OPS, True),
    "opts": ("options", _OPTIONS, True),
    "timeout": ("timeout", (timedelta, type(None)), True),
}


def read(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """Read the arguments of a call by their meaning; None if they fit none of the method's forms."""
    for names in method.forms:
        given = dict(zip(names, args, strict=False))
        if len(args) <= len(names) and not (kwargs and kwargs.keys() - names | kwargs.keys() & given.keys()):
            try:
                return _meaning(names, {**given, **kwargs})
            except TypeError:  # they are of another form
                continue
    return None


def _meaning(names: tuple[str, ...], given: dict[str, Any]) -> Arguments:
    """Read the arguments of one form.

    Raises:
        TypeError: they are of another one.
    """
    arguments = Arguments()
    for name in names:
        meaning, kind, optional = _PARAMETERS[name]
        if name not in given:
            if not optional:
                raise TypeError(name)
        elif kind is int:  # or what can stand for one, such as a tensor
            setattr(arguments, meaning, operator.index(given[name]))
        elif kind is object or _is_for(name, type(given[name])):
            setattr(arguments, meaning, given[name])
        else:
            raise TypeError(name)
    return arguments


def _takes(name: str, kind: type) -> bool:
    """Tell whether a parameter takes values of this kind."""
    return issubclass(kind, _PARAMETERS[name][1])


_is_for: Callable[[str, type], bool] = functools.cache(_takes)  # to look through all options takes time
