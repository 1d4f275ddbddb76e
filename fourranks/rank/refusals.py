"""Which calls Gloo refuses by their arguments alone, before it communicates.

A rank whose call contradicts another rank's stands still in front of the backend. If the backend will refuse
the call, the rank enters it all the same: no other rank waits for that call, and the program may catch the
error. A rule that is missing here means a false alarm then; a wrong one lets a contradiction pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from .describe import tensors_in
from .methods import Arguments, Method

_SHARES_ARE_EQUAL = torch.__version__ >= "2.15"  # those of an all_to_all_single without splits; else refused


def is_refused(method: Method, arguments: Arguments, rank: int, size: int) -> bool:
    """Return whether Gloo surely refuses this call of a rank in a group of this size."""
    tensors = tensors_in([arguments.input, arguments.output])
    if method.name != "all_reduce" and any(tensor.layout is not torch.strided for tensor in tensors):
        return True
    accepts = _ACCEPTS.get(method.name)
    return accepts is not None and not accepts(arguments, rank, size)


def ends_process(method: Method, arguments: Arguments) -> bool:
    """Return whether Gloo would end the process in this call: it looks for rows without asking for any."""
    return method.name == "reduce_scatter_single" and _lacks_rows(arguments)


def refuse_without_rows() -> NoReturn:
    """Refuse such a call in place of the backend."""
    raise ValueError("reduce_scatter_single: a tensor without dimensions has no rows. x.reshape(1) has one.")


def is_accepted(method: Method, arguments: Arguments, rank: int, size: int) -> bool:
    """Return whether Gloo surely accepts this call at once; an error then comes when the call is waited for.

    Known of calls with one tensor on each side only.
    """
    match arguments.input, arguments.output:
        case ([torch.Tensor() as tensor], None):
            tensors = [tensor]
        case (torch.Tensor() as input, torch.Tensor() as output):
            tensors = [input, output]
        case _:
            return False
    return (
        not method.exchange
        and all(tensor.layout is torch.strided and tensor.device.type == "cpu" for tensor in tensors)
        and 0 <= arguments.root_rank < size
        and not is_refused(method, arguments, rank, size)
    )


def _accepts_all_reduce(arguments: Arguments, _rank: int, _size: int) -> bool:
    match arguments.input:
        case [tensor]:
            return tensor.layout is torch.strided or arguments.reduce_op == dist.ReduceOp.SUM
    return True


def _accepts_all_gather(arguments: Arguments, _rank: int, size: int) -> bool:
    return _one_for_each(arguments.output, arguments.input, size)


def _accepts_gather(arguments: Arguments, rank: int, size: int) -> bool:
    return rank != arguments.root_rank or _one_for_each(arguments.output, arguments.input, size)


def _accepts_scatter(arguments: Arguments, rank: int, size: int) -> bool:
    return rank != arguments.root_rank or _one_for_each(arguments.input, arguments.output, size)


def _accepts_reduce_scatter(arguments: Arguments, rank: int, size: int) -> bool:
    match arguments.input, arguments.output:
        case [[*tensors]], [tensor]:
            return len(tensors) == size and _alike([tensors[rank]], tensor, 1)
    return True


def _accepts_all_gather_single(arguments: Arguments, _rank: int, size: int) -> bool:
    whole, part = arguments.output, arguments.input
    if not (isinstance(whole, torch.Tensor) and isinstance(part, torch.Tensor)):  # lists of a coalesced call
        return True
    is_divided = whole.layout is torch.strided and whole.dim() > 0
    return is_divided and _alike(whole.chunk(size), part, size)


def _accepts_reduce_scatter_single(arguments: Arguments, _rank: int, size: int) -> bool:
    whole, part = arguments.input, arguments.output
    if _lacks_rows(arguments):
        return False
    return not _tensors(whole, part) or (whole.dtype == part.dtype and whole.shape[0] == part.shape[0] * size)


def _accepts_all_to_all(arguments: Arguments, _rank: int, size: int) -> bool:
    given, taken = arguments.input, arguments.output
    return len(given) == len(taken) == size and _alike([*given, *taken], given[0], 2 * size)


def _accepts_all_to_all_single(arguments: Arguments, _rank: int, size: int) -> bool:
    sides = (arguments.input, arguments.input_splits), (arguments.output, arguments.output_splits)
    if not arguments.input.is_contiguous():
        return False
    if not any(splits for _, splits in sides):
        is_divided = all(tensor.dim() and len(tensor) % size == 0 for tensor, _ in sides)
        return arguments.input.numel() == arguments.output.numel() and (is_divided or not _SHARES_ARE_EQUAL)
    return all(len(splits) == size and sum(splits) == len(rows) for rows, splits in sides if splits)


def _accepts_message(arguments: Arguments, _rank: int, _size: int) -> bool:
    has_place = arguments.peer is not None or all(tensor.numel() for tensor in arguments.input)
    return has_place and arguments.tag >= 0 and all(tensor.is_contiguous() for tensor in arguments.input)


def _accepts_never(_arguments: Arguments, _rank: int, _size: int) -> bool:
    return False


_ACCEPTS: dict[str, Callable[[Arguments, int, int], bool]] = {
    "all_reduce": _accepts_all_reduce,
    "all_gather": _accepts_all_gather,
    "all_gather_single": _accepts_all_gather_single,
    "gather": _accepts_gather,
    "gather_single": _accepts_never,  # torch has it since 2.15, and Gloo does not
    "scatter": _accepts_scatter,
    "reduce_scatter": _accepts_reduce_scatter,
    "reduce_scatter_single": _accepts_reduce_scatter_single,
    "all_to_all": _accepts_all_to_all,
    "all_to_all_single": _accepts_all_to_all_single,
    "send": _accepts_message,
    "recv": _accepts_message,
}


def _one_for_each(parts: Any, whole: Any, size: int) -> bool:
    """Tell whether one list of `parts` has a tensor like `whole` for each rank; True for several lists."""
    match parts, whole:
        case [[*tensors]], [tensor]:
            return _alike(tensors, tensor, size)
    return True


def _alike(tensors: Sequence[torch.Tensor], other: torch.Tensor, size: int) -> bool:
    """Tell whether these are as many tensors, all of the other's kind and shape."""
    return len(tensors) == size and all(
        (each.dtype, each.layout, each.shape) == (other.dtype, other.layout, other.shape) for each in tensors
    )


def _lacks_rows(arguments: Arguments) -> bool:
    """Tell whether a tensor of a call has no dimensions."""
    return any(tensor.dim() == 0 for tensor in tensors_in([arguments.input, arguments.output]))


def _tensors(*values: Any) -> bool:
    """Tell whether these are tensors with rows, and not the lists of a coalesced call."""
    return all(isinstance(value, torch.Tensor) and value.dim() for value in values)
