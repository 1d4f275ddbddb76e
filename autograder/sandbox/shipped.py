"""A student's function as the bytes that it was shipped in. Only ranks unpickle them, and so run its code.

`interpreter` keeps one for each function that is checked.
"""

from __future__ import annotations

import os
import pickle

from autograder.sandbox.ledger import Contradiction, Ledger
from autograder.sandbox.witness import SHARES_FILES
from autograder.student import UNTOLD, Answers, NotebookFunction, RunFailed, call_on_rank
from fourranks.trace import Call

# The ranks of these drivers write files that others read, as the exercise asks them to.
_SHARING_FILES = b"autograder.drivers.checkpoints:"


class ShippedFunction(NotebookFunction):
    """A function of another process.

    Args:
        pickled: what cloudpickle made of it.
        ledger: what witnesses note of its ranks, which are kept from passing each other anything but by
            calls; None where nobody is kept from anything.
    """

    def __init__(self, pickled: bytes, ledger: Ledger | None) -> None:
        super().__init__(pickled)
        self._ledger = ledger
        self._entry = _call

    def _run_on_ranks(self, requests: list[bytes], backend: str) -> tuple[Answers, list[list[Call]]]:
        if self._ledger is None:
            return super()._run_on_ranks(requests, backend)
        shares = str(any(_SHARING_FILES in request for request in requests))
        if os.environ.get(SHARES_FILES) != shares:
            self.release()
            os.environ[SHARES_FILES] = shares
        self._ledger.forget()
        answers, calls = super()._run_on_ranks(requests, backend)
        world = self._worlds[len(requests), backend]
        try:
            return answers, self._ledger.confirmed(calls, world.pids)
        except Contradiction as contradiction:
            raise RunFailed(UNTOLD, str(contradiction), calls=calls) from None


def _call(pickled: bytes, request: memoryview) -> pickle.PickleBuffer:
    return call_on_rank(pickle.loads(pickled), request)
