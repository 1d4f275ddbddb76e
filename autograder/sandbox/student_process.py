"""A student's notebook in a process of its own, and handles to the functions that it defines.

`broker` answers there. Its answers are checked here before they are used.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from autograder.inside import call_json, moments, wire
from autograder.inside.drivers.calls import call
from autograder.inside.moments import Moment
from autograder.inside.runs import DEADLOCK, DIED, RAISED, TIMED_OUT, UNTOLD, WRONG_TYPE, Ran, RunFailed
from autograder.kit.student import Function
from autograder.sandbox import loopback
from autograder.sandbox.launch import Launch, Launched, Unconfined, launch
from autograder.sandbox.sandbox import SandboxMissing
from fourranks import zygote
from fourranks.conductor import FORM_ANEW_TIMEOUT
from fourranks.placement import can_host_nccl
from fourranks.trace import Call

STARTING = 60.0  # seconds for importing torch, and as many for what cells and ranks are forked from
CELL = 120.0  # seconds for one cell
MOST_TEXT = 2_000_000  # characters that all cells of a notebook may show
MOST_PICTURES = 64 << 20  # and of pictures, as base64
A_DISPLAY = 1_000  # characters that a display counts for besides its own: a page has to hold it
LEFT_OUT = "What this cell showed is left out: the notebook shows too much.\n"
LONGEST = 20_000  # characters of a message, or of a name
LONGEST_LEFT_OUT = 200  # and where the notebook shows too much
PICTURE = "image/png"
GRACE = FORM_ANEW_TIMEOUT + 5.0  # seconds beyond a call's own timeout to start, free and end its ranks
GRACE_ON_GPUS = 90.0  # the same where each rank starts CUDA and NCCL

_UNCONFINED = partial(launch, Unconfined)
_REASONS = (RAISED, DEADLOCK, DIED, TIMED_OUT, WRONG_TYPE, UNTOLD)


@dataclass(frozen=True)
class Shown:
    """The output of a cell: text, displays by kind of data, and the error that it ended in."""

    text: str = ""
    displays: tuple[dict[str, str], ...] = ()
    error: dict[str, str] | None = None

    @property
    def pictures(self) -> int:
        """The characters of its pictures."""
        return sum(len(display.get(PICTURE, "")) for display in self.displays)

    @property
    def size(self) -> int:
        """The characters of everything else, and the room that displays take up."""
        parts = [self.error or {}, *self.displays]
        everything = len(self.text) + sum(len(value) for part in parts for value in part.values())
        return everything - self.pictures + A_DISPLAY * len(self.displays)


class BrokerConnection:
    """A process that was launched, and what it is asked."""

    def __init__(self, launched: Launched) -> None:
        self._connection, self.process = launched.connection, launched.process
        self.close = launched.close

    def begin(self, terms: dict[str, Any]) -> None:
        """Wait until it has started, and have it begin on these terms; it has nothing of the student's yet.

        Raises:
            SandboxMissing: when it does not, which is the machine's fault.
        """
        try:
            wire.receive(self._connection, STARTING)
            self.ask(terms, STARTING)
        except (RunFailed, EOFError, OSError, wire.WireError) as error:
            reasons = self.process.exceeded or str(error) or "it ended at once", self.process.last_words()
            reason = ": ".join(filter(None, reasons))
            raise SandboxMissing(
                f"The process for notebooks did not start on this machine: {reason}."
            ) from None

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Return its answer; without one it is of no more use, and should be closed.

        Raises:
            RunFailed: when there is none in time, or what arrives is no answer.
        """
        try:
            self._connection.settimeout(timeout)
            wire.send(self._connection, request)
            answer = wire.receive(self._connection, timeout, wire.ANSWER)
        except TimeoutError:
            raise RunFailed(TIMED_OUT, f"no answer within {timeout:g} s") from None
        except (EOFError, OSError):
            ended = self.process.exceeded or "the process that runs the notebook ended"
            raise RunFailed(DIED, ended) from None
        except wire.WireError as error:
            raise RunFailed(WRONG_TYPE, f"the answer cannot be read: {error}") from None
        if not isinstance(answer, dict):
            raise RunFailed(WRONG_TYPE, "the answer cannot be read")
        return answer


class StudentProcess:
    """A notebook's cells, run one by one, and the functions that they defined.

    When a cell or a call brings the process down, another one runs the same cells again, but for those that
    did it.

    Args:
        cells: to begin with.
        launch: starts a process for them.
        forbidden: libraries that the notebook's exercise forbids.
        launch_on_gpus: starts a process that has the GPUs. If given, functions run on NCCL, too.
        witnessed: whether its ranks communicate through witnesses, where it is in a sandbox.

    Attributes:
        deadline: a time.monotonic() from which on nothing is run any more.
    """

    def __init__(
        self,
        cells: Sequence[str] = (),
        launch: Launch = _UNCONFINED,
        forbidden: Iterable[str] = (),
        launch_on_gpus: Launch | None = None,
        witnessed: bool = True,
    ) -> None:
        self._cells = list(cells)
        self._launch = launch
        self._forbidden = frozenset(forbidden)
        self._launch_on_gpus, self._witnessed = launch_on_gpus, witnessed
        self._on_gpus: StudentProcess | None = None
        self._cells_on_gpus: list[str] = []
        self._broker: BrokerConnection | None = None
        self._called = ""  # the function that has ranks
        self._room, self._room_for_pictures = MOST_TEXT, MOST_PICTURES
        self.deadline = math.inf

    def run(self, cell: str) -> Shown:
        """Run one more cell; a cell that fails does not stop the next one."""
        try:
            shown = _shown(self.ask({"cell": cell}, CELL))
        except RunFailed as failure:
            return Shown(
                error={"name": "CellFailed", "message": failure.message, "traceback": failure.message}
            )
        self._cells.append(cell)
        self._room -= shown.size
        self._room_for_pictures -= shown.pictures
        if min(self._room, self._room_for_pictures) >= 0:
            return shown
        return Shown(text=LEFT_OUT, error=shown.error and _shortened(shown.error, LONGEST_LEFT_OUT))

    def forbid(self, libraries: Iterable[str]) -> None:
        """Take these libraries away. A process that was started with them is replaced."""
        if not self._forbidden.issuperset(libraries):
            self._forbidden |= frozenset(libraries)
            self.close()
            self._close_on_gpus()

    @property
    def has_gpus(self) -> bool:
        """Whether functions run on NCCL, too."""
        return self._launch_on_gpus is not None

    def on_gpus(self) -> StudentProcess:
        """Return the process in which functions run on NCCL; it has run the same cells."""
        assert self._launch_on_gpus is not None  # as `has_gpus` says
        ran = self._cells_on_gpus
        if self._on_gpus is None or ran != self._cells[: len(ran)]:
            self._close_on_gpus()
            self._on_gpus = StudentProcess(
                launch=self._launch_on_gpus, forbidden=self._forbidden, witnessed=False
            )
        self._on_gpus.deadline = self.deadline
        for cell in self._cells[len(self._cells_on_gpus) :]:
            self._on_gpus.run(cell)
            self._cells_on_gpus.append(cell)
        return self._on_gpus

    def function(self, name: str) -> RemoteFunction:
        """Return the handle to the function of this name; if there is none, each run of it fails."""
        return RemoteFunction(name, self)

    def traffic(self) -> loopback.LoopbackTraffic | None:
        """Return what its ranks have moved so far, by Linux's count; None if it has no loopback.

        Raises:
            RunFailed: when there is no time left.
        """
        return self._running().process.traffic()

    def prepare(self, function: str) -> None:
        """End the ranks of any other function: the ranks of a sandbox are of one world at a time."""
        if function != self._called:
            self.release()
            self._called = function

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            RunFailed: when there is none in time, or what arrives is no answer.
        """
        broker = self._running()
        try:
            return broker.ask(request, self._limited(timeout))
        except RunFailed:
            self.close()
            raise

    def release(self) -> None:
        """End the ranks of all functions, so that no traffic of theirs is counted as another's."""
        if self._broker is not None:
            with contextlib.suppress(RunFailed):
                self.ask({"release": True}, GRACE)
        if self._on_gpus is not None:
            self._on_gpus.release()

    def close(self) -> None:
        """End the process and its ranks."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def _close_on_gpus(self) -> None:
        other, self._on_gpus = self._on_gpus, None
        self._cells_on_gpus = []
        if other is not None:
            other.close()

    def _running(self) -> BrokerConnection:
        """Return the process, after running all cells; one that brings it down is not run again."""
        while self._broker is None:
            self._limited(CELL)  # before a process is started for nothing
            self._broker = self._begun()
            for cell in list(self._cells):
                try:
                    self._broker.ask({"cell": cell}, self._limited(CELL))
                except RunFailed:
                    self.close()
                    self._limited(CELL)
                    self._cells.remove(cell)
                    break
        return self._broker

    def _begun(self) -> BrokerConnection:
        """Start a process.

        Raises:
            SandboxMissing: when this machine cannot.
        """
        try:
            broker = BrokerConnection(self._launch())
        except OSError as error:
            raise SandboxMissing(
                f"No process for notebooks can be started on this machine: {error}."
            ) from None
        try:
            broker.begin({"forbidden": sorted(self._forbidden), "witnessed": self._witnessed})
        except SandboxMissing:
            broker.close()
            raise
        return broker

    def _limited(self, timeout: float) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            self.close()
            raise RunFailed(TIMED_OUT, "the time for this submission is over")
        return min(timeout, left)

    def __enter__(self) -> StudentProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._close_on_gpus()


def _shown(answer: dict[str, Any]) -> Shown:
    """Read what a cell showed: text by name."""
    match answer:
        case {"text": str(text), "displays": list(displays), "error": error} if all(
            map(_is_text, displays)
        ) and (error is None or _is_text(error)):
            return Shown(text, tuple(displays), error and _shortened(error))
    raise RunFailed(WRONG_TYPE, "what a cell shows cannot be read")


def _is_text(value: object) -> bool:
    return isinstance(value, dict) and all(type(each) is str for pair in value.items() for each in pair)


def _shortened(error: dict[str, str], most: int = LONGEST) -> dict[str, str]:
    return {name: error[name][-most:] for name in ("name", "message", "traceback") if name in error}


class RemoteFunction(Function):
    """A function of a `StudentProcess`."""

    def __init__(self, name: str, process: StudentProcess) -> None:
        self.name = name
        self._process = process

    def __call__(self, *arguments: Any, **keywords: Any) -> object:
        """Call it on a rank of its own, for a test cell that asserts something and uses no check.

        Raises:
            RunFailed: when it returns nothing.
        """
        (outcome,) = self.run([(arguments, keywords)], driver=call)
        assert outcome is not None  # as the function was called
        return outcome.value

    def backends(self, world_size: int) -> tuple[str, ...]:
        """Return Gloo only in a sandbox without GPUs."""
        if self._process.traffic() is None:
            return super().backends(world_size)
        if self._process.has_gpus and can_host_nccl(world_size, zygote.shared().gpus()):
            return ("gloo", "nccl")
        return ("gloo",)

    @property
    def measures(self) -> bool:
        return self._process.traffic() is not None

    def forbid(self, libraries: Iterable[str]) -> None:
        self._process.forbid(libraries)

    def _run_on_ranks(self, requests: list[bytes], backend: str) -> Ran:
        on_gpus = backend == "nccl" and self._process.has_gpus
        process = self._process.on_gpus() if on_gpus else self._process
        process.prepare(self.name)
        before = None if on_gpus else process.traffic()
        patience = self.patience
        answer = process.ask(
            {"run": self.name, "requests": requests, "backend": backend, "timeout": patience},
            patience + (GRACE_ON_GPUS if on_gpus else GRACE),
        )
        try:
            calls = call_json.loads(answer.get("calls"), len(requests))
        except ValueError as error:
            raise RunFailed(WRONG_TYPE, f"the ranks' record cannot be read: {error}") from None
        match answer:
            case {"answers": list(answers), "moments": noted} if _are_bytes(answers, len(requests)):
                if before is not None:
                    _compare(calls, process.traffic() - before)  # type: ignore[operator]
                return Ran(answers, calls, _moments(noted, len(requests)))
            case {
                "reason": str(reason),
                "message": str(message),
                "exception": str(exception),
                "no such rank": bool(no_such_rank),
                "stuck in": list(stuck_in),
            } if reason in _REASONS and all(type(call) is str for call in stuck_in):
                message, exception = message[:LONGEST], exception[:LONGEST]
                raise RunFailed(reason, message, exception, calls, no_such_rank, stuck_in)
        raise RunFailed(WRONG_TYPE, "the answer cannot be read")

    def release(self) -> None:
        """Keep its ranks, which serve the next check, too, until `StudentProcess.release`."""


def _are_bytes(answers: list[Any], number: int) -> bool:
    return len(answers) == number and all(type(each) is bytes for each in answers)


def _moments(noted: object, world_size: int) -> list[list[Moment]] | None:
    """Read what witnesses have noted of each rank; None where there are none."""
    match noted:
        case None:
            return None
        case list() if len(noted) == world_size and all(type(own) is list for own in noted):
            return [moments.read(own) for own in noted]
    raise RunFailed(WRONG_TYPE, "the moments of the ranks cannot be read")


def _compare(calls: list[list[Call]], counted: loopback.LoopbackTraffic) -> None:
    if reason := loopback.contradiction(calls, counted):
        raise RunFailed(UNTOLD, reason, calls=calls)
