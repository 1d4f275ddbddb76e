"""Answers checks from within the sandbox: has cells run, and functions that they define called on ranks.

`student_process` asks over a socket, in frames of `wire`. No student's code runs in this process: cells run
in another one (`cells`), and what they define passes through here as bytes. Each rank gets its own inputs
from here, so that no student's code sees those of all ranks.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import linecache
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from autograder.inside import call_json, filesystem, forked_zygote, isolation, limits, masking, wire
from autograder.inside.ledger import Ledger
from autograder.inside.meeting import Meeting
from autograder.inside.runs import DIED, RAISED, WRONG_TYPE, RunFailed
from autograder.inside.shipped import ShippedFunction
from autograder.inside.witnessed_rank import become_witnessed_rank
from fourranks.errors import StartError
from fourranks.protocol.places import show_lines_of
from fourranks.trace import Call

MAX_SOURCE = 2_000_000  # characters of cells that messages may show: of all cells, with room to spare
_CELL = "<ipython-input"  # how the names of cells begin
MAX_CALLS = 100_000  # of all ranks in one run; the smallest messages of the largest case are a tenth of it


def main(descriptor: int) -> None:
    """Say that the imports are over, then start what the first request asks for, and answer all others."""
    connection = socket.socket(fileno=descriptor)
    if filesystem.is_inside():
        limits.restrict()
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)  # all ranks would share what it was
        sys.path.remove(filesystem.HOME)  # nothing that students write may be imported here, or by ranks
        os.chdir("/")
    wire.send(connection, {"ready": True})
    with contextlib.suppress(EOFError, OSError, wire.WireError):
        terms = wire.receive(connection)
        calls = _start(terms["forbidden"], terms["witnessed"])
        wire.send(connection, {})
        while True:
            wire.send(connection, calls.answer(wire.receive(connection)), wire.ANSWER)


def _start(forbidden: Sequence[str], witnessed: bool) -> _Calls:
    """Start the process for the cells and, in a sandbox, the one that ranks are forked from.

    Args:
        forbidden: libraries that none of them may have.
        witnessed: whether ranks communicate through witnesses, which only Gloo does.
    """
    is_inside = filesystem.is_inside()
    if is_inside and forbidden:
        masking.mask(forbidden)
    gc.freeze()  # all imports: no process forked from here need look through them, and so copy their pages
    gc.enable()
    if not is_inside:
        return _Calls(_start_notebook(), None, forbidden)
    notebook = _fork_notebook()
    if not witnessed:
        forked_zygote.share()
        isolation.unpickle_messages_only()
        return _Calls(notebook, None, forbidden)
    ledger, meeting = Ledger(), Meeting()
    become = functools.partial(become_witnessed_rank, ledger, meeting)
    forked_zygote.share(become, ledger.fileno(), *meeting.filenos())
    isolation.unpickle_messages_only()
    return _Calls(notebook, ledger)


def _fork_notebook() -> socket.socket:
    """Fork a process for the cells, which shares with this one what was imported, and nothing else."""
    from autograder.inside import cells

    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            forked_zygote.keep_only(theirs.fileno())
            forked_zygote.end_with(parent)
            limits.restrict_students()
            isolation.keep_apart(shares_files=True)
            if not filesystem.has_namespaces():  # the network is everybody's
                isolation.leave_no_traces(shares_files=True, starts_sessions=True)
            os.chdir(filesystem.HOME)
            forked_zygote.share()
            cells.serve(theirs)
        finally:
            os._exit(1)
    theirs.close()
    return ours


def _start_notebook() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "autograder.inside.cells", str(theirs.fileno())]
        subprocess.Popen(command, pass_fds=[theirs.fileno()])
    return ours


class _Calls:
    """Answers to requests, by their kind."""

    def __init__(self, notebook: socket.socket, ledger: Ledger | None, forbidden: Sequence[str] = ()) -> None:
        self._notebook, self._ledger, self._forbidden = notebook, ledger, forbidden
        self._functions: dict[str, ShippedFunction] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"cell": _}:
                return self._ask_notebook(request)
            case {"run": name, "requests": requests, "backend": backend, "timeout": timeout}:
                try:
                    return self._run(name, requests, backend, timeout)
                except RunFailed as failure:
                    return _failed(failure, len(requests))
                except StartError as error:  # no fault of the student's, so a check should say what it is
                    return _failed(RunFailed(DIED, f"the ranks could not start: {error}"), len(requests))
            case {"release": True}:
                while self._functions:
                    self._functions.popitem()[1].release()
                return {}
        raise wire.WireError("no request")

    def _run(self, name: str, requests: list[bytes], backend: str, timeout: float) -> dict[str, Any]:
        if name not in self._functions:
            self._functions[name] = self._shipped(name)
        shipped = self._functions[name]
        ran = shipped.run(requests, backend, timeout)
        if _count(ran.calls) > MAX_CALLS:
            raise RunFailed(WRONG_TYPE, f"the ranks communicated more than {MAX_CALLS:,} times")
        noted = [[list(moment) for moment in own] for own in ran.moments] if ran.moments is not None else None
        return {"answers": ran.answers, "calls": call_json.dumps(ran.calls), "moments": noted}

    def _shipped(self, name: str) -> ShippedFunction:
        match self._ask_notebook({"ship": name}):
            case {"function": bytes(pickled), "sources": dict(sources)} if _size(sources) <= MAX_SOURCE:
                _add_sources(sources)
                return ShippedFunction(pickled, self._ledger, self._forbidden)
            case {"failure": str(message), "exception": str(exception)}:
                raise RunFailed(RAISED, message, exception)
        raise RunFailed(WRONG_TYPE, f"what the notebook says of {name} cannot be read")

    def _ask_notebook(self, request: dict[str, Any]) -> dict[str, Any]:
        wire.send(self._notebook, request)
        answer: dict[str, Any] = wire.receive(self._notebook)
        return answer


def _size(sources: dict[Any, Any]) -> int:
    return sum(len(text) for pair in sources.items() for text in pair if type(text) is str)


def _add_sources(sources: dict[Any, Any]) -> None:
    """Let messages show lines of the notebook's cells; of no other file, even of the same name."""
    for name in [name for name in linecache.cache if name.startswith(_CELL)]:  # of a function before this
        del linecache.cache[name]
    for name, text in sources.items():
        if type(name) is type(text) is str and name.startswith(_CELL):
            show_lines_of(name, text)


def _failed(failure: RunFailed, world_size: int) -> dict[str, Any]:
    calls = failure.calls if failure.calls and _count(failure.calls) <= MAX_CALLS else [[]] * world_size
    return {
        "reason": failure.reason,
        "message": wire.sendable(failure.message),
        "exception": wire.sendable(failure.exception),
        "no such rank": failure.no_such_rank,
        "stuck in": list(failure.stuck_in),
        "calls": call_json.dumps(calls),
    }


def _count(calls: list[list[Call]]) -> int:
    return sum(map(len, calls))
