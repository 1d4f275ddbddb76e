"""What answers checks in the sandbox: has cells run, and functions that they define called on ranks.

`remote` asks over a socket, in frames of `wire`. No student's code runs in this process: cells run in another
one (`cells`), and what they define passes through here as bytes. So each rank gets its own inputs, from here,
and nobody sees those of all ranks.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import socket
import subprocess
import sys
from typing import Any

from autograder import wire
from autograder.sandbox import bubblewrap, isolation, limits, recorded
from autograder.sandbox.ledger import Ledger
from autograder.sandbox.shipped import ShippedFunction
from autograder.sandbox.witness import Meeting, become_witnessed_rank
from autograder.student import RAISED, WRONG_TYPE, RunFailed
from fourranks import forked_zygote
from fourranks.trace import Call

MAX_CALLS = 100_000  # of all ranks in one run; the smallest messages of the largest case are a tenth of it


def main(descriptor: int) -> None:
    """Start the process for the cells, then answer."""
    if bubblewrap.is_inside():
        limits.restrict()
        sys.path.remove(bubblewrap.HOME)  # nothing that students write may be imported here, or by ranks
        os.chdir("/")
        notebook = _fork_notebook()
        ledger, meeting = Ledger(), Meeting()
        become = functools.partial(become_witnessed_rank, ledger, meeting)
        forked_zygote.share(become, ledger.fileno(), *meeting.filenos())
        isolation.unpickle_messages_only()
    else:
        notebook, ledger = _start_notebook(), None
    serve(socket.socket(fileno=descriptor), _Calls(notebook, ledger))


def serve(connection: socket.socket, calls: _Calls) -> None:
    """Answers requests until the other side, or the process for the cells, is gone."""
    wire.send(connection, {"ready": True})
    with contextlib.suppress(EOFError, OSError, wire.WireError):
        while True:
            wire.send(connection, calls.answer(wire.receive(connection)), wire.ANSWER)


def _fork_notebook() -> socket.socket:
    """A process for the cells that shares with this one what was imported, and nothing else."""
    from autograder.sandbox import cells

    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            forked_zygote.keep_only(theirs.fileno())
            forked_zygote.end_with(parent)
            isolation.keep_apart(shares_files=True)
            os.chdir(bubblewrap.HOME)
            forked_zygote.share()
            cells.serve(theirs)
        finally:
            os._exit(1)
    theirs.close()
    return ours


def _start_notebook() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "autograder.sandbox.cells", str(theirs.fileno())]
        subprocess.Popen(command, pass_fds=[theirs.fileno()])
    return ours


class _Calls:
    """What is asked, answered."""

    def __init__(self, notebook: socket.socket, ledger: Ledger | None) -> None:
        self._notebook, self._ledger = notebook, ledger
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
            case {"release": True}:
                while self._functions:
                    self._functions.popitem()[1].release()
                return {}

    def _run(self, name: str, requests: list[bytes], backend: str, timeout: float) -> dict[str, Any]:
        if name not in self._functions:
            self._functions[name] = self._shipped(name)
        handle = self._functions[name]
        handle.timeout = timeout
        answers, calls = handle._run_on_ranks(requests, backend)
        if _count(calls) > MAX_CALLS:
            raise RunFailed(WRONG_TYPE, f"the ranks communicated more than {MAX_CALLS:,} times")
        return {"answers": answers, "calls": recorded.plain(calls)}

    def _shipped(self, name: str) -> ShippedFunction:
        match self._ask_notebook({"ship": name}):
            case {"function": bytes(pickled), "sources": dict(sources)}:
                _add_sources(sources)
                return ShippedFunction(pickled, self._ledger)
            case {"failure": str(message), "exception": str(exception)}:
                raise RunFailed(RAISED, message, exception)
        raise RunFailed(WRONG_TYPE, f"what the notebook says of {name} cannot be read")

    def _ask_notebook(self, request: dict[str, Any]) -> dict[str, Any]:
        wire.send(self._notebook, request)
        return wire.receive(self._notebook)


def _add_sources(sources: dict[Any, Any]) -> None:
    """Let messages show lines of the notebook's cells; of no other file, whatever these are called."""
    for name, text in sources.items():
        if type(name) is type(text) is str and name.startswith("<ipython-input"):
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _failed(failure: RunFailed, world_size: int) -> dict[str, Any]:
    calls = failure.calls if failure.calls and _count(failure.calls) <= MAX_CALLS else [[]] * world_size
    return {
        "reason": failure.reason,
        "message": failure.message,
        "exception": failure.exception,
        "calls": recorded.plain(calls),
    }


def _count(calls: list[list[Call]]) -> int:
    return sum(map(len, calls))


if __name__ == "__main__":
    main(int(sys.argv[1]))
