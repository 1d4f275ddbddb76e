"""How a check reaches a student's code: a handle to a named function or class, used on real ranks.

Plain data and tensors go in and come out, by `wire`, wherever the code runs: `NotebookFunction` runs it on
ranks of this process, `student_process.RemoteFunction` in a process of its own. Checks cannot tell the
difference. Anything but a function, such as a class, is used by a driver, which runs on the ranks
beside it.
"""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autograder.inside import moments, wire
from autograder.inside.call_on_rank import by_value
from autograder.inside.drivers import name_of
from autograder.inside.moments import Moment
from autograder.inside.runs import WRONG_TYPE, Ran, RunFailed
from autograder.inside.worlds import Worlds
from fourranks import zygote
from fourranks.hardware import busyness
from fourranks.placement import place, preferred_backend
from fourranks.trace import Call
from fourranks.transcript import Transcript

BUSIEST = 4.0  # times as long as its timeout that a call may take, however busy the machine is

MAX_PRINTED_LINES, MAX_PRINTED_WIDTH = 20, 400  # of what ranks print; each note of ours fits

MAX_REASON = 1_000  # characters of what a rank says of a value that it cannot send: a type has any name


@dataclass(frozen=True)
class Outcome:
    """The outcome of one rank's call."""

    value: Any  # the function's result; a check looks at its type before it uses it
    arguments: list[Any]  # its arguments after the call
    calls: list[Call]  # this rank's communication
    moments: Sequence[Moment] = ()  # that the driver marked


class NotAFunction(TypeError):
    """The argument of a check cannot be called."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints in place of a traceback through our own frames."""
        return [f"\x1b[31mTypeError\x1b[0m: {self}"]


class Function(ABC):
    """A handle to a student's function or class.

    Attributes:
        name: by which the student calls it.
        timeout: seconds for one call on all ranks, if the machine has nothing else to do; the slowest case of
            a reference takes a tenth of it on two cores.
        until_failure: whether a check may stop at the first case that fails, as nobody reads more of it.
    """

    name: str
    timeout: float = 20.0
    until_failure: bool = False

    def run(
        self,
        inputs: Sequence[tuple[Any, ...] | None],
        *,
        members: tuple[int, ...] | None = None,
        backend: str = "gloo",
        driver: Callable[..., Any] | None = None,
    ) -> list[Outcome | None]:
        """Call the function on one rank for each of `inputs`, at the same time.

        Args:
            inputs: the positional arguments for each rank; on a rank with None nothing is called. No rank
                sees the inputs of another.
            members: if given, the call gets `group=`, a process group of these ranks.
            driver: a function of a module of `inside.drivers`, to be called in place of the student's,
                with that before the arguments.

        Returns:
            For each rank what its call left behind; None where it was not called.

        Raises:
            RunFailed: when that is not the outcome on every rank, after little more than its patience.
        """
        options = [members and list(members), driver and name_of(driver)]
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
        """Return the backends of so many ranks: Gloo, and NCCL where a world of so many would have it."""
        if not torch.backends.cuda.is_built():  # no need to start a process that would say so
            return ("gloo",)
        placement = place(world_size, preferred_backend("auto", "auto"), "auto", zygote.shared().gpus)
        return ("gloo", "nccl") if placement.backend == "nccl" else ("gloo",)

    @property
    def patience(self) -> float:
        """The seconds for one call now: its timeout, longer the more the machine has to do."""
        return round(self.timeout * min(busyness(), BUSIEST), 1)

    @abstractmethod
    def forbid(self, libraries: Sequence[str]) -> None:
        """Take these libraries away from ranks that are started from now on."""

    @abstractmethod
    def _run_on_ranks(self, requests: list[bytes], backend: str) -> Ran:
        """Hand each rank its request."""

    @property
    def measures(self) -> bool:
        """Whether the memory of its ranks is measured from outside where a case asks for it."""
        return False

    @property
    def printed(self) -> str:
        """The first lines that the ranks printed in the last run, where they may be shown.

        In grading they may not: code can print the inputs of hidden tests.
        """
        return ""

    @abstractmethod
    def release(self) -> None:
        """End the ranks that earlier runs left ready for the next one."""

    def __enter__(self) -> Function:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class NotebookFunction(Function):
    """A function of this process, shipped by value to ranks."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._pickled = b""  # when it has been called once
        self._worlds = Worlds()

    def forbid(self, libraries: Sequence[str]) -> None:
        self._worlds.forbid(libraries)

    def _run_on_ranks(self, requests: list[bytes], backend: str) -> Ran:
        self._pickled = self._pickled or by_value(self._function)
        return self._worlds.run(self._pickled, requests, backend, self.patience)

    @property
    def printed(self) -> str:
        """The first lines that the ranks printed in the last run, each behind the ranks that printed it."""
        return _excerpt(self._worlds.transcript) if self._worlds.transcript else ""

    def release(self) -> None:
        self._worlds.release()


def _cut(line: str) -> str:
    return line if len(line) <= MAX_PRINTED_WIDTH else f"{line[: MAX_PRINTED_WIDTH - 1]}…"


def _excerpt(transcript: Transcript) -> str:
    lines = [_cut(line) for line in itertools.islice(transcript.lines(), MAX_PRINTED_LINES + 1)]
    if len(lines) > MAX_PRINTED_LINES:
        lines[-1] = "… more was printed"
    return "\n".join(lines)


def handle(function: Callable[..., Any] | Function) -> Function:
    """Return the handle to a student's function; a handle is returned as it is.

    Raises:
        NotAFunction: when `function` cannot be called.
    """
    if isinstance(function, Function):
        return function
    if not callable(function):
        kind = type(function).__name__
        raise NotAFunction(f"a check takes your function itself, not something of type {kind}: {function!r}")
    return NotebookFunction(function)


def _outcome(rank: int, answer: bytes | memoryview, calls: list[Call]) -> Outcome | None:
    try:
        match wire.decode(answer):
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
