"""Tells whose code a frame belongs to: the reader's own, a library's, torch's or ours.

A call is shown by the reader's own line: a cell's, or one of a file that is neither installed nor part of
Python. Libraries and parts of torch that it came through stand behind it. `process_group` asks before every
operation, so this must cost microseconds.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import IPython
import torch
import typing_extensions

from ..protocol.calls import THREAD
from ..protocol.places import OUTSIDE, Line

MOST_KNOWN = 1024  # ways to a call whose callers are kept
MAX_CALLERS = 6  # lines of the reader's that are kept for a call, besides the one that made it


def _below(folder: Path) -> str:
    """Return how the paths of all files in a folder begin: torchmetrics does not lie in that of torch."""
    return str(folder) + os.sep


_TORCH = _below(Path(torch.__file__).parent)
_OURS = _below(Path(__file__).parents[1])
_ON_RANKS = _below(Path(__file__).parent)
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen ")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_GENERATED = f"{os.sep}torchinductor_"  # a folder of code that torch.compile has written
_BELOW_THE_READER = (_below(Path(IPython.__file__).parent), str(Path(__file__).with_name("main.py")))
_PARTS_OF_TORCH = {
    "nn/parallel/distributed.py": "DistributedDataParallel",
    "distributed/fsdp": "FSDP",
    "distributed/tensor": "DTensor",
    "distributed/pipelining": "torch.distributed.pipelining",
    "distributed/checkpoint": "torch.distributed.checkpoint",
    "distributed/algorithms/join.py": "Join",
    "nn/modules/_functions.py": "SyncBatchNorm",
    "autograd/graph.py": "the backward pass",
}
_WAIT_IN_CPP = {str(Path(_TORCH, path)) for path in ("nn/parallel/distributed.py", "distributed/utils.py")}
# The functions of torch.distributed themselves, and what they pass through on their way to a process group.
_COLLECTIVES = (
    _OURS,
    *(str(Path(_TORCH, "distributed", f"{name}.py")) for name in ("distributed_c10d", "c10d_logger")),
)
_C10D = str(Path(_TORCH, "distributed", "distributed_c10d.py"))
_RUNS_BACKWARD_PASS = str(Path(_TORCH, "autograd", "graph.py"))
_RUNS_TASK = asyncio.BaseEventLoop.run_until_complete.__code__
_START = "_fourranks_start"  # the attribute of a thread that says where it was started
_passed_over: list[str] = [typing_extensions.__file__]  # wraps functions that torch has deprecated
_libraries: set[str] = set()


class Owner(Enum):
    """The author of the code of a file."""

    READER = auto()
    LIBRARY = auto()
    PYTHON = auto()  # its standard library
    TORCH = auto()  # or our own
    BELOW = auto()  # code that runs the reader's, and shows its output


_READER, _BELOW = Owner.READER, Owner.BELOW  # Python 3.11 takes its time to look a member up


class Caller(NamedTuple):
    """The place in the reader's code where a call is made.

    Attributes:
        at: the innermost line.
        callers: the lines that called the functions it is in, from the innermost to the outermost.
        through: the library and the part of torch that lie between that line and the call.
        function: the function of torch.distributed that was called there, if the call is made by one.
    """

    at: Line
    callers: tuple[Line, ...] = ()
    through: str = ""
    function: str = ""


class _Owners(dict[str, Owner]):
    """The author of each file: a dictionary, because each frame of each call asks for it."""

    def __missing__(self, file: str) -> Owner:
        self[file] = owner = _whose(file)[0]
        return owner


_owners = _Owners()
_callers: dict[tuple[int, ...], tuple[Caller, list[CodeType]]] = {}


def caller(frame: FrameType | None) -> Caller:
    """Find the reader's code that led to this frame.

    Without any such code: the innermost line that is not torch's. If there is none, the rank itself asks, as
    it forms the default group, or one of autograd's own threads.
    """
    own: list[Line] = []
    library: FrameType | None = None
    any_other: FrameType | None = None
    is_below = False
    part = function = ""
    while frame is not None and len(own) <= MAX_CALLERS:
        owner, name = _whose(frame.f_code.co_filename)
        if owner is Owner.READER:
            own.append(_line(frame))
        elif owner is Owner.BELOW:
            if own:  # nothing of the reader's lies outside of it
                break
            is_below = True
        elif not own and not is_below:
            if owner is Owner.TORCH:
                any_other = library  # the part of Python's library that it has called tells nothing
                part = part or name
                function = frame.f_code.co_name if frame.f_code.co_filename == _C10D else function
            else:
                any_other = any_other or frame
                library = library or (frame if owner is Owner.LIBRARY else None)
        frame = frame.f_back
    if not own:
        nowhere = Line("", 0, OUTSIDE if is_below else "backward")
        at = _line(any_other) if any_other is not None else nowhere
        return Caller(at, (), part, function)
    return Caller(own[0], tuple(own[1:]), ", ".join(filter(None, [_named(library), part])), function)


def own_caller(frame: FrameType | None) -> Caller:
    """Do the same for a frame of the thread that asks, which finds most of its calls answered already.

    No other thread's: its frames go on while they are looked at. A thread that runs none of the reader's
    code, as one of a pool that was given `dist.barrier`, goes by the line at which it was started.
    """
    innermost, way, own = frame, [], 0
    while frame is not None and own <= MAX_CALLERS:
        code = frame.f_code
        owner = _owners[code.co_filename]
        if owner is _READER:
            own += 1
        elif owner is _BELOW and own:
            break
        way.append(id(code))  # to hash the code itself would take as long as to find the caller
        way.append(frame.f_lasti)
        frame = frame.f_back
    key = tuple(way)
    if (known := _callers.get(key)) is None:
        if len(_callers) >= MOST_KNOWN:
            _callers.clear()
        known = _callers[key] = caller(innermost), _codes(innermost, len(way) // 2)
    if own:
        return _with_its_start(known[0])
    return _by_its_start(known[0]) if way else known[0]


def noting_its_start(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """Wrap `Thread.start`: each thread keeps the reader's line at which it was started."""

    @functools.wraps(start)
    def start_and_note(thread: threading.Thread) -> None:
        found = own_caller(sys._getframe(1))
        if found.at.file and owner_of(found.at.file) is Owner.READER:
            vars(thread)[_START] = found
        start(thread)

    return start_and_note


def _by_its_start(found: Caller) -> Caller:
    """Return where this thread was started, for a call that no code of the reader's leads to."""
    start: Caller | None = vars(threading.current_thread()).get(_START)
    if start is None:
        return found
    parts = (part for part in (THREAD, found.through) if part)
    return start._replace(through=", ".join(parts), function=found.function)


def _with_its_start(found: Caller) -> Caller:
    """Add where this thread was started to a call that the reader's own code makes in it.

    Not for a thread of a pool: the line at which it was started gave it another piece of work.
    """
    thread = vars(threading.current_thread())
    start: Caller | None = thread.get(_START)
    if start is None:
        return found
    code = getattr(thread.get("_target"), "__code__", None)
    if code is not None and _owners[code.co_filename] is Owner.PYTHON:
        return found
    return found._replace(callers=(*found.callers, start.at, *start.callers)[:MAX_CALLERS])


def whereabouts(frame: FrameType | None) -> Caller:
    """Find the reader's code that a thread is in; of an event loop, that of the coroutine that awaits."""
    found = caller(frame)
    while frame is not None and owner(frame) is not Owner.READER and frame.f_code is not _RUNS_TASK:
        frame = frame.f_back
    task = frame.f_locals.get("future") if frame is not None and frame.f_code is _RUNS_TASK else None
    coroutine: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while (inner := getattr(coroutine, "cr_frame", None)) is not None:
        if owner(inner) is Owner.READER:
            found = found._replace(at=_line(inner))
        coroutine = coroutine.cr_await
    return found


def of_backward_pass() -> FrameType | None:
    """Return the frame of the thread that waits for a backward pass; None if there is none, or several.

    Autograd computes the gradients of GPU tensors in threads of its own, which have no frames: what C++ code
    calls there, as DDP's reducer does, comes from that thread's line. So does what a hook of torch's, such as
    PowerSGD, calls when a collective is over, in a thread of Gloo's.
    """
    running = [
        each for each in sys._current_frames().values() if each.f_code.co_filename == _RUNS_BACKWARD_PASS
    ]
    return running[0] if len(running) == 1 else None


def _codes(frame: FrameType | None, count: int) -> list[CodeType]:
    """Return the code of some frames: to be kept, because only what exists keeps its id."""
    codes: list[CodeType] = []
    while frame is not None and len(codes) < count:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes


def pass_over(path: Path) -> None:
    """Treat files under `path` as neither the reader's code nor a library's."""
    _passed_over.append(str(path))
    _forget()


def count_as_library(folder: Path) -> None:
    """Treat files in `folder`, which calls the reader's code, as a library; a call through it is not told."""
    if _below(folder) not in _libraries:
        _libraries.add(_below(folder))
        _forget()


def _forget() -> None:
    """Judge files again."""
    _whose.cache_clear()
    _library_line.cache_clear()
    _owners.clear()
    _callers.clear()


def owner(frame: FrameType) -> Owner:
    """Say whose code this frame runs."""
    return _whose(frame.f_code.co_filename)[0]


def owner_of(file: str) -> Owner:
    """Say whose code is in this file."""
    return _owners[file]


def stands_between(frame: FrameType) -> bool:
    """Return whether this frame is of what lies between the reader's calls and torch's, on ranks alone."""
    return frame.f_code.co_filename.startswith(_ON_RANKS)


def in_native_code(frame: FrameType) -> bool:
    """Return whether C++ code waits for collectives in this frame: a backward pass, or DDP's own."""
    return frame.f_code.co_name == "_engine_run_backward" or frame.f_code.co_filename in _WAIT_IN_CPP


def torch_calls(frame: FrameType | None) -> bool:
    """Return whether torch's own code, such as `Join`, calls the running function of torch.distributed."""
    while frame is not None and _makes_calls(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


@functools.lru_cache(maxsize=4096)
def _makes_calls(file: str) -> bool:
    """Tell whether a file has the functions of torch.distributed, or belongs to what they call."""
    return file.startswith(_COLLECTIVES)


@functools.lru_cache(maxsize=4096)
def _whose(file: str) -> tuple[Owner, str]:
    """Say who wrote a file; for one of torch's, give the name that its part is known by, if any."""
    if file.startswith(_BELOW_THE_READER):
        return Owner.BELOW, ""
    if file.startswith((_TORCH, _OURS, *_passed_over)):
        inside = Path(file).relative_to(_TORCH).as_posix() if file.startswith(_TORCH) else ""
        return Owner.TORCH, next((n for path, n in _PARTS_OF_TORCH.items() if inside.startswith(path)), "")
    if any(folder in file for folder in (*_INSTALLED, _GENERATED)) or file.startswith(tuple(_libraries)):
        return Owner.LIBRARY, ""
    if file.startswith(_STANDARD_LIBRARY) or (file.startswith("<") and not _is_typed(file)):
        return Owner.PYTHON, ""
    return Owner.READER, ""


def _is_typed(file: str) -> bool:
    """Tell whether this is the name that IPython or Python gives to lines that were typed in.

    Those below %%time are numbered from there on; an expression behind %time goes by its cell's line.
    """
    return file.startswith(("<ipython-input-", "<stdin>", "<python-input-", "<timed exec>"))


def _line(frame: FrameType) -> Line:
    return Line(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name)  # None between two lines


def _named(library: FrameType | None) -> str:
    """Name a library's line as a reader would look for it: "torchmetrics/metric.py, line 512 (sync)"."""
    return _library_line(*_line(library)) if library is not None else ""


@functools.lru_cache(maxsize=1024)
def _library_line(file: str, line: int, function: str) -> str:
    if file.startswith(tuple(_libraries)):  # callers of the reader's code are of no interest
        return ""
    for folder in _INSTALLED:
        file = file.rpartition(folder)[2]
    return f"{file}, line {line} ({function})"
