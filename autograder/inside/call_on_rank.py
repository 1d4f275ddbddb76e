"""The call of a student's function on one rank, by a driver where the check names one."""

from __future__ import annotations

import functools
import inspect
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from IPython import get_ipython

from autograder.inside import drivers, moments, reports, wire
from autograder.inside.drivers import driver_named
from autograder.inside.runs import RAISED, RunFailed
from fourranks.protocol import parcel
from fourranks.protocol.messages import RANK_NAMES
from fourranks.protocol.remote_error import ErrorWithData
from fourranks.rank import frames
from fourranks.rank.frames import Owner
from fourranks.rank.process_group import RecordingProcessGroup
from fourranks.rank.wrong_rank import refusal_of

_LIBRARIES = (Owner.LIBRARY, Owner.TORCH, Owner.BELOW)  # whose frames are no student's
DRIVERS = f"{drivers.__name__}.".encode()
# Those with which torch imports its compiler: at the first use of an optimizer, DDP or torch.func.
COMPILING = tuple(
    DRIVERS + module + b":"
    for module in (
        b"capstone",
        b"checkpoints",
        b"data_parallelism",
        b"fully_sharded",
        b"less_communication",
        b"ring_attention",
        b"sharded_data_parallelism",
        b"sharded_parameters",
        b"split_backward",
        b"tensor_parallelism",
        b"three_d_parallelism",
    )
)


class StudentError(ErrorWithData):
    """The exception that a student's function raised.

    Its data: the exception's class; file and line of the innermost place in the student's code; the message;
    whether it says that a call named a rank which its group does not have.
    """


def by_value(function: Callable[..., Any]) -> bytes:
    """Pickle a function of a notebook with all that it refers to.

    Raises:
        RunFailed: something in it cannot travel.
    """
    try:
        return parcel.dumps(function)
    except Exception as error:
        message = (
            f"the function cannot be sent to the ranks ({error}). Open files, locks and other live objects "
            "cannot travel: make them on the ranks instead."
        )
        raise RunFailed(RAISED, message, type(error).__name__) from None


def call_on_rank(pickled: memoryview, request: memoryview) -> pickle.PickleBuffer:
    """Make the group on this rank, call the function, and return what it returned and left behind.

    All of it may be large: it travels beside the pickles of calls and answers, not in them.
    """
    frames.count_as_library(Path(__file__).parent)
    # A handle that is kept for its times keeps tensors, and some checks look at which are alive.
    RecordingProcessGroup.recorder.times_launched = False
    return pickle.PickleBuffer(_answer(pickle.loads(pickled), request))


def _answer(function: Callable[..., Any], request: memoryview) -> bytes:
    arguments, members, driver = wire.decode(request)
    keywords = {} if members is None else {"group": dist.new_group(members)}
    if arguments is None:
        return wire.encode(None)
    arguments = _on_device(arguments)
    _lend_names(function)
    marks = moments.marks
    marks.begin()
    use = functools.partial(driver_named(driver), function) if driver else function
    try:
        value = reports.plain(use(*arguments, **keywords))
    except (Exception, SystemExit) as error:
        raised = _describe(error)
        raise StudentError("\n".join(map(str, raised[:4])), raised) from None
    try:
        marked = [list(moment) for moment in marks.end()]
        return wire.encode({"value": value, "arguments": arguments, "moments": marked})
    except wire.WireError as error:
        return wire.encode({"unsendable": str(error)})


def _lend_names(function: Callable[..., Any]) -> None:
    """Let a notebook's code use the names that every rank has; its own names win."""
    kind = function if isinstance(function, type) else type(function)
    parts = [getattr(function, "func", function), *vars(kind).values()]
    for part in (inspect.unwrap(getattr(part, "__func__", part)) for part in parts):
        names = getattr(part, "__globals__", {})
        if names.get("__name__") == "__main__":
            for name in RANK_NAMES:
                names.setdefault(name, get_ipython().user_ns[name])


def _on_device(value: Any) -> Any:
    """Return an argument, or a list or tuple of them, on this rank's GPU if the ranks talk by NCCL."""
    if dist.get_backend() != "nccl":
        return value
    match value:
        case torch.Tensor():
            return value.cuda()
        case list() | tuple():
            return type(value)(map(_on_device, value))
    return value


def _describe(error: BaseException) -> tuple[str, str, int, str, bool]:
    """Return what a `StudentError` carries."""
    file, line = "", 0
    step: types.TracebackType | None = error.__traceback__
    while step is not None:
        if not _is_library(step.tb_frame):
            file, line = step.tb_frame.f_code.co_filename, step.tb_lineno
        step = step.tb_next
    return type(error).__name__, file, line, str(error), refusal_of(error) is not None


def _is_library(frame: types.FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in sys.stdlib_module_names or frames.owner(frame) in _LIBRARIES
