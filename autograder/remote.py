"""A student's code in a process of its own, and handles to the functions in it.

`StudentProcess` starts the process, which runs the notebook's cells in order, as a kernel would, and then
answers requests over a socket, in frames of `wire`. Of the checks it sees nothing but the requests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from autograder import wire
from autograder.student import DIED, RAISED, TIMED_OUT, WRONG_TYPE, Function, NotebookFunction, RunFailed
from fourranks.trace import Call

STARTING = 60.0  # seconds for importing torch and running the cells
GRACE = 15.0  # seconds beyond a call's own timeout for starting, freeing and ending its ranks

_REASONS = (RAISED, "deadlock", DIED, TIMED_OUT, WRONG_TYPE)


class StudentProcess:
    """A process that holds what a notebook's cells defined; started again if a call brought it down."""

    def __init__(self, cells: Sequence[str]) -> None:
        self._cells = list(cells)
        self._process: subprocess.Popen | None = None
        self._connection: socket.socket | None = None

    def function(self, name: str) -> RemoteFunction:
        """The handle to the function of this name, which need not exist: then each run of it fails."""
        return RemoteFunction(name, self)

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The process's answer.

        Raises:
            RunFailed: when there is none in time, or what arrives is no answer.
        """
        if self._connection is None:
            self._start()
        try:
            wire.send(self._connection, request)
            answer = wire.receive(self._connection, timeout)
        except TimeoutError:
            failure = RunFailed(TIMED_OUT, f"no answer within {timeout:g} s")
        except (EOFError, OSError):
            failure = RunFailed(DIED, "the process that runs the notebook ended")
        except wire.WireError as error:
            failure = RunFailed(WRONG_TYPE, f"the answer cannot be read: {error}")
        else:
            if isinstance(answer, dict):
                return answer
            failure = RunFailed(WRONG_TYPE, "the answer cannot be read")
        self.close()
        raise failure

    def release(self, name: str) -> None:
        """End the ranks that the function of this name has, if there are any."""
        if self._process is not None:
            with contextlib.suppress(RunFailed):
                self.ask({"release": name}, GRACE)

    def close(self) -> None:
        """End the process and its ranks."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = self._connection = None

    def _start(self) -> None:
        self._connection, theirs = socket.socketpair()
        command = [sys.executable, "-m", "autograder.remote", str(theirs.fileno())]
        # What the cells print is not part of any answer.
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        self.ask({"cells": self._cells}, STARTING)

    def __enter__(self) -> StudentProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemoteFunction(Function):
    """A function of a `StudentProcess`."""

    def __init__(self, name: str, process: StudentProcess) -> None:
        self.name = name
        self._process = process

    def _run_on_ranks(self, requests: list[bytes], backend: str) -> tuple[list[bytes], list[list[Call]]]:
        answer = self._process.ask(
            {"run": self.name, "requests": requests, "backend": backend, "timeout": self.timeout},
            self.timeout + GRACE,
        )
        calls = _checked_calls(answer.get("calls"), len(requests))
        match answer:
            case {"answers": list(answers)} if [type(a) for a in answers] == [bytes] * len(requests):
                return answers, calls
            case {"reason": str(reason), "message": str(message), "exception": str(exception)} if (
                reason in _REASONS
            ):
                raise RunFailed(reason, message, exception, calls)
        raise RunFailed(WRONG_TYPE, "the answer cannot be read")

    def release(self) -> None:
        self._process.release(self.name)


def _checked_calls(calls: object, world_size: int) -> list[list[Call]]:
    """The calls of each rank, after every field was found to be of its type."""
    try:
        checked = [[_checked_call(**fields) for fields in own] for own in calls]
    except (TypeError, KeyError):
        checked = None
    if checked is None or len(checked) != world_size:
        raise RunFailed(WRONG_TYPE, "the record of the communication cannot be read")
    return checked


def _checked_call(**fields: Any) -> Call:
    for field in dataclasses.fields(Call):
        value = fields[field.name]
        if type(value).__name__ not in field.type and not (value is None and "None" in field.type):
            raise TypeError(field.name)
    if any(type(number) is not int for number in fields["ranks"] + fields["shape"]):
        raise TypeError("ranks or shape")
    return Call(**fields)


# --- in the student's process
# ----------------------------------------------------------------------------------


def serve(connection: socket.socket) -> None:
    """Answers requests until the other side is gone."""
    shell = _Shell()
    with contextlib.suppress(EOFError):
        while True:
            wire.send(connection, shell.answer(wire.receive(connection)))


class _Shell:
    """Runs cells as a kernel does, and then the functions that they defined on ranks."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        # Nothing of a student's is to end up in the grader's own IPython history.
        self._shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        self._functions: dict[str, NotebookFunction] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"cells": cells}:
                for cell in cells:  # a cell that fails does not stop the next one, as in grading
                    self._shell.run_cell(cell, store_history=True)
                return {}
            case {"run": name, "requests": requests, "backend": backend, "timeout": timeout}:
                return self._run(name, requests, backend, timeout)
            case {"release": name}:
                if name in self._functions:
                    self._functions.pop(name).release()
                return {}

    def _run(self, name: str, requests: list[bytes], backend: str, timeout: float) -> dict[str, Any]:
        function = self._shell.user_ns.get(name)
        if not callable(function):
            return _failed(
                RunFailed(RAISED, f"the notebook defines no function {name}", "NameError"), len(requests)
            )
        handle = self._functions.setdefault(name, NotebookFunction(function))
        handle.timeout = timeout
        try:
            answers, calls = handle._run_on_ranks(requests, backend)
        except RunFailed as failure:
            return _failed(failure, len(requests))
        return {"answers": answers, "calls": _plain(calls)}


def _failed(failure: RunFailed, world_size: int) -> dict[str, Any]:
    return {
        "reason": failure.reason,
        "message": failure.message,
        "exception": failure.exception,
        "calls": _plain(failure.calls or [[]] * world_size),
    }


def _plain(calls: list[list[Call]]) -> list[list[dict[str, Any]]]:
    return [[dataclasses.asdict(call) for call in own] for own in calls]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
