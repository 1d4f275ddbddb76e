"""How a check reaches a student's code: a handle to a named function or class, used on real ranks.

Plain data and tensors go in and come out, by `wire`, wherever the code runs: `NotebookFunction` runs it on
ranks of this process, `remote.RemoteFunction` in a process of its own. Checks cannot tell the difference.
What is more than a function to be called, such as a class, is used by a driver, which runs on the ranks
beside it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import itertools
import linecache
import pickle
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from IPython import get_ipython

import fourranks
from autograder import moments, wire
from autograder.forbidden import hide
from autograder.moments import Moment
from fourranks import zygote
from fourranks.aftermath import Aftermath
from fourranks.errors import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, StartError
from fourranks.rank import frames
from fourranks.trace import Call
from fourranks.transcript import Transcript

_RANK_NAMES = ("rank", "world_size", "device", "torch", "dist")
_DRIVERS = b"autograder.drivers."  # where drivers are, as requests name them

MAX_PRINTED_LINES, MAX_PRINTED_WIDTH = 20, 400  # of what ranks print; each note of ours fits

RAISED, DEADLOCK, DIED, TIMED_OUT, WRONG_TYPE = "raised", "deadlock", "died", "timed out", "wrong type"
MAX_REASON = 1_000  # characters of what a rank says of a value that it cannot send: a type has any name
UNTOLD = "untold traffic"  # the ranks made other calls than they say, or moved more bytes, or less


@dataclass(frozen=True)
class Outcome:
    """What one rank's call left behind."""

    value: object  # what the function returned
    arguments: list  # its arguments after the call
    calls: list[Call]  # what this rank communicated
    moments: Sequence[Moment] = ()  # that the driver marked


@dataclass(frozen=True)
class Ran:
    """What came back from all ranks.

    Attributes:
        answers: of each rank.
        calls: that each rank made.
        moments: that each rank's driver marked, where a witness has noted them; else answers have them.
    """

    answers: Sequence[bytes | memoryview]
    calls: list[list[Call]]
    moments: Sequence[Sequence[Moment]] | None = None


@dataclass
class RunFailed(Exception):
    """A run without an outcome.

    Attributes:
        reason: RAISED, DEADLOCK, DIED, TIMED_OUT, WRONG_TYPE or UNTOLD.
        message: what happened, for the student.
        exception: name of the exception's class, when one was raised.
        calls: what each rank had communicated until then.
    """

    reason: str
    message: str
    exception: str = ""
    calls: list[list[Call]] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return self.message


class NotDefined(NameError):
    """A notebook has no function or class of the name that a check asks for."""


class NotAFunction(TypeError):
    """What was passed to a check cannot be called."""

    def _render_traceback_(self) -> list[str]:
        """IPython prints this in place of a traceback through our own frames."""
        return [f"\x1b[31mTypeError\x1b[0m: {self}"]


class Function(ABC):
    """A handle to a student's function or class.

    Attributes:
        name: what the student calls it.
        timeout: seconds for one call on all ranks; the slowest case of a reference takes a tenth of it on
            two cores.
        until_failure: whether a check may stop at the first case that fails, as nobody reads more of it.
        printed: the first lines that the ranks printed in the last run, where they may be shown. In grading
            they may not: code can print the inputs of hidden tests.
        measures: whether the memory of its ranks is measured from outside where a case asks for it.
    """

    name: str
    timeout: float = 20.0
    until_failure: bool = False
    printed: str = ""
    measures: bool = False
    _forbidden: Sequence[str] = ()

    def run(
        self,
        inputs: Sequence[tuple | None],
        *,
        members: tuple[int, ...] | None = None,
        backend: str = "gloo",
        driver: Callable | None = None,
    ) -> list[Outcome | None]:
        """Calls the function on one rank for each of `inputs`, at the same time.

        Args:
            inputs: the positional arguments for each rank; on a rank with None nothing is called. No rank
                sees the inputs of another.
            members: if given, what is called gets `group=`, a process group of these ranks.
            driver: a function of a module of `autograder.drivers`, to be called in place of the student's,
                with that before the arguments.

        Returns:
            For each rank what its call left behind; None where it was not called.

        Raises:
            RunFailed: when that is not the outcome on every rank, after little more than `timeout` seconds.
        """
        options = [members and list(members), driver and f"{driver.__module__}:{driver.__name__}"]
        requests = [
            wire.encode([None if arguments is None else list(arguments), *options]) for arguments in inputs
        ]
        ran = self._run_on_ranks(requests, backend)
        outcomes = [_outcome(rank, answer, ran.calls[rank]) for rank, answer in enumerate(ran.answers)]
        if ran.moments is None:
            return outcomes
        return [
            outcome and dataclasses.replace(outcome, moments=own)
            for outcome, own in zip(outcomes, ran.moments, strict=True)
        ]

    def backends(self, world_size: int) -> tuple[str, ...]:
        """What so many ranks can talk by where they run: Gloo, and NCCL where there is a GPU for each."""
        if not torch.backends.cuda.is_built():  # no need to start a process that would say so
            return ("gloo",)
        gpus = zygote.shared().gpus()
        return ("gloo", "nccl") if gpus.nccl and gpus.count >= world_size else ("gloo",)

    def forbid(self, libraries: Sequence[str]) -> None:
        """Take these libraries away from ranks that are started from now on."""
        self._forbidden = libraries

    @abstractmethod
    def _run_on_ranks(self, requests: list[bytes], backend: str) -> Ran:
        """Hand each rank its request."""

    @abstractmethod
    def release(self) -> None:
        """Ends the ranks that earlier runs left ready for the next one."""

    def __enter__(self) -> Function:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class NotebookFunction(Function):
    """A function of this process, shipped by value to ranks that are kept while all goes well."""

    def __init__(self, function: Callable) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._entry: Callable[..., pickle.PickleBuffer] = call_on_rank
        self._worlds: dict[tuple[int, str], fourranks.RankGroup] = {}
        self._transcript: Transcript | None = None  # of the last run

    def _run_on_ranks(self, requests: list[bytes], backend: str) -> Ran:
        key = (len(requests), backend)
        if key not in self._worlds:
            if any(_DRIVERS in request for request in requests):  # drivers train, plain functions do not
                zygote.shared().import_more()
            self._worlds[key] = fourranks.start(world_size=len(requests), backend=backend)
            if self._forbidden:
                self._worlds[key].run(hide, self._forbidden)
        world = self._worlds[key]
        self._transcript = None
        with world.trace() as trace:
            try:
                inputs = [(self._function, pickle.PickleBuffer(request)) for request in requests]
                answers = world.map(self._entry, inputs, self.timeout, self._keep_transcript)
                return Ran(answers, trace.calls)
            except FourRanksError as error:
                failure = _failure(error, self.timeout)
        # Whatever a failed call left in these ranks must not reach the next one.
        self._worlds.pop(key).stop()
        failure.calls = trace.calls
        raise failure

    def _keep_transcript(self, transcript: Transcript) -> None:
        self._transcript = transcript

    @property
    def printed(self) -> str:
        """The first lines that the ranks printed in the last run, each behind the ranks that printed it."""
        return _excerpt(self._transcript) if self._transcript else ""

    def release(self) -> None:
        while self._worlds:
            self._worlds.popitem()[1].stop()


def _cut(line: str) -> str:
    return line if len(line) <= MAX_PRINTED_WIDTH else f"{line[: MAX_PRINTED_WIDTH - 1]}…"


def _excerpt(transcript: Transcript) -> str:
    lines = [_cut(line) for line in itertools.islice(transcript.lines(), MAX_PRINTED_LINES + 1)]
    if len(lines) > MAX_PRINTED_LINES:
        lines[-1] = "… more was printed"
    return "\n".join(lines)


def handle(function: Callable | Function) -> Function:
    """The handle to a student's function; a handle is returned as it is.

    Raises:
        NotAFunction: when `function` cannot be called.
    """
    if isinstance(function, Function):
        return function
    if not callable(function):
        kind = type(function).__name__
        raise NotAFunction(f"a check takes your function itself, not something of type {kind}: {function!r}")
    return NotebookFunction(function)


class _StudentError(Exception):
    """What a student's function raised, as four lines: class, file, line number, message."""


def call_on_rank(function: Callable, request: memoryview) -> pickle.PickleBuffer:
    """Runs on a rank: makes the group, calls the function, answers with what it returned and left behind.

    Request and answer may be large: they travel beside the pickles, not in them.
    """
    frames.count_as_library(Path(__file__).parent)
    return pickle.PickleBuffer(_answer(function, request))


def _answer(function: Callable, request: memoryview) -> bytes:
    arguments, members, driver = wire.decode(request)
    keywords = {} if members is None else {"group": dist.new_group(members)}
    if arguments is None:
        return wire.encode(None)
    arguments = _on_device(arguments)
    _lend_names(function)
    marks = moments.marks
    marks.begin()
    use = functools.partial(_driver(driver), function) if driver else function
    try:
        value = use(*arguments, **keywords)
    except (Exception, SystemExit) as error:
        raise _StudentError("\n".join(map(str, _describe(error)))) from None
    try:
        marked = [list(moment) for moment in marks.end()]
        return wire.encode({"value": value, "arguments": arguments, "moments": marked})
    except wire.WireError as error:
        return wire.encode({"unsendable": str(error)})


def _lend_names(function: Callable) -> None:
    """Let a notebook's code use the names that every rank has; its own names win."""
    kind = function if isinstance(function, type) else type(function)
    parts = [getattr(function, "func", function), *vars(kind).values()]
    for part in (inspect.unwrap(getattr(part, "__func__", part)) for part in parts):
        names = getattr(part, "__globals__", {})
        if names.get("__name__") == "__main__":
            for name in _RANK_NAMES:
                names.setdefault(name, get_ipython().user_ns[name])


def _driver(name: str) -> Callable:
    module, _, function = name.partition(":")
    if not module.startswith(_DRIVERS.decode()):
        raise ValueError(f"{name} is no driver")
    return getattr(importlib.import_module(module), function)


def _on_device(value: object) -> object:
    """The same arguments on this rank's GPU, if the ranks talk by NCCL."""
    if dist.get_backend() != "nccl":
        return value
    if isinstance(value, torch.Tensor):
        return value.cuda()
    return [_on_device(item) for item in value] if isinstance(value, list) else value


def _describe(error: BaseException) -> tuple[str, str, int, str]:
    """The exception's class, the innermost place in the student's code, and the message."""
    file, line = "", 0
    step: types.TracebackType | None = error.__traceback__
    while step is not None:
        if not _is_library(step.tb_frame):
            file, line = step.tb_frame.f_code.co_filename, step.tb_lineno
        step = step.tb_next
    return type(error).__name__, file, line, str(error)


def _is_library(frame: types.FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in ("torch", "fourranks", "autograder") or package in sys.stdlib_module_names


def _failure(error: FourRanksError, timeout: float) -> RunFailed:
    match error:
        case RankError():
            return _raised(error)
        case DeadlockError():
            return RunFailed(DEADLOCK, _event(error))
        case RankDied():
            return RunFailed(DIED, _event(error))
        case CellTimeout():
            where = "\n".join(_event(error).splitlines()[1:])
            return RunFailed(TIMED_OUT, f"no answer from all ranks within {timeout:g} s\n{where}")
        case StartError():
            raise error  # no fault of the student's
        case _:
            what = (
                f"{call_on_rank.__name__} and its arguments"  # as the error has it: nothing a student knows
            )
            return RunFailed(RAISED, str(error).replace(what, "the function"), type(error).__name__)


def _event(error: FourRanksError) -> str:
    """What happened, without what became of the world: a check does not keep it."""
    text = str(error)
    for aftermath in Aftermath:
        text = text.removesuffix(aftermath.value).rstrip()
    return text


def _raised(error: RankError) -> RunFailed:
    rank, first = min(error.errors.items())
    if first.name != _StudentError.__name__:
        return RunFailed(RAISED, f"rank {rank} raised {first.name}: {first.message}", first.name)
    name, file, line, message = first.message.split("\n", 3)
    code = linecache.getline(file, int(line)).strip()
    where = f" in line {line}{f' ({code})' if code else ''}" if int(line) else ""
    return RunFailed(RAISED, f"rank {rank} raised {name}{where}{': ' if message else ''}{message}", name)


def _outcome(rank: int, answer: bytes | memoryview, calls: list[Call]) -> Outcome | None:
    try:
        answer = wire.decode(answer)
        match answer:
            case None:
                return None
            case {"unsendable": str(reason)}:
                told = reason[:MAX_REASON]
                raise RunFailed(
                    WRONG_TYPE, f"rank {rank} returned or left behind what no check can read: {told}"
                )
            case {"value": value, "arguments": list(arguments), "moments": list(marked)}:
                return Outcome(value, arguments, calls, moments.read(marked))
    except (wire.WireError, moments.Unmarked) as error:
        raise RunFailed(WRONG_TYPE, f"rank {rank} answered what no check can read: {error}") from None
    raise RunFailed(WRONG_TYPE, f"rank {rank} answered what no check can read")
