"""A student's function as the bytes that it was shipped in. Only ranks unpickle them, and so run its code.

`interpreter` keeps one for each function that is checked.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence

from autograder.sandbox.ledger import Contradiction, Ledger
from autograder.sandbox.witness import IS_MEASURED, KIND, SHARES_FILES
from autograder.sandbox.witnessed import WitnessedProcessGroup
from autograder.student import RAISED, UNTOLD, NotebookFunction, Ran, RunFailed, call_on_rank

# By drivers, as requests name them: what their ranks are. Those of the first write files that others read, as
# the exercise asks them to.
_KINDS = {
    b"autograder.drivers.checkpoints:": SHARES_FILES,
    b"autograder.drivers.held_memory:": IS_MEASURED,
}
# Bytes of a function with all that it refers to: a rank has them before it is measured, and could free them.
MOST_MEASURED = 1 << 20


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
        self._kind = ""  # of its ranks

    def _run_on_ranks(self, requests: list[bytes], backend: str) -> Ran:
        if self._ledger is None:
            return super()._run_on_ranks(requests, backend)
        kind = _kind(requests)
        if kind != self._kind or kind == IS_MEASURED:  # in which no code of a student's may have run before
            self.release()
        if kind == IS_MEASURED and len(self._function) > MOST_MEASURED:
            raise RunFailed(RAISED, _too_large(len(self._function)))
        self._kind = os.environ[KIND] = kind
        self._ledger.forget()
        ran = super()._run_on_ranks(requests, backend)
        page = self._ledger.read(self._worlds[len(requests), backend].pids)
        try:
            return Ran(ran.answers, page.confirmed(ran.calls), page.moments)
        except Contradiction as contradiction:
            raise RunFailed(UNTOLD, str(contradiction), calls=ran.calls) from None


def _too_large(nbytes: int) -> str:
    return (
        f"the code and the notebook's values that it refers to take {nbytes >> 20} MiB, and where memory is "
        f"measured at most {MOST_MEASURED >> 20} MiB: make large values on the ranks instead"
    )


def _kind(requests: Sequence[bytes]) -> str:
    return next((kind for name, kind in _KINDS.items() if any(name in request for request in requests)), "")


def _call(pickled: bytes, request: memoryview) -> pickle.PickleBuffer:
    if os.environ.get(KIND) == IS_MEASURED:
        WitnessedProcessGroup.witness.ask({"measure": True}).wait()
    return call_on_rank(pickle.loads(pickled), request)
