"""A student's function as the bytes that it was shipped in. Only ranks unpickle them, and so run its code.

`broker` keeps one for each function that is checked.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence

from autograder.inside.call_on_rank import call_on_rank
from autograder.inside.ledger import Contradiction, Ledger
from autograder.inside.runs import RAISED, UNTOLD, Ran, RunFailed
from autograder.inside.witnessed import WitnessedProcessGroup
from autograder.inside.witnessed_rank import IS_MEASURED, IS_UNCOUNTED, KIND, SHARES_FILES
from autograder.inside.worlds import CAPACITY, Worlds

# By drivers, as requests name them: the kinds of their ranks. Those of the first write files that others
# read, as the exercise asks them to.
_KINDS = {
    b"autograder.inside.drivers.checkpoints:": SHARES_FILES,
    b"autograder.inside.drivers.held_memory:": IS_MEASURED,
    b"autograder.inside.drivers.capstone:": IS_UNCOUNTED,
}
# Bytes of a function with all that it refers to: a rank has them before it is measured, and could free them.
MOST_MEASURED = 1 << 20


class ShippedFunction:
    """A function of another process.

    Args:
        pickled: by cloudpickle.
        ledger: witnesses' notes of its ranks, which can exchange data through calls only;
            None where ranks are not confined.
        forbidden: libraries that its ranks may not have.
    """

    def __init__(self, pickled: bytes, ledger: Ledger | None, forbidden: Sequence[str] = ()) -> None:
        self._pickled = pickled
        self._ledger = ledger
        self._worlds = Worlds(_call)
        self._worlds.forbid(forbidden)
        self._kind = ""  # of its ranks
        self._pids: Sequence[int] = ()  # of the ranks whose page was read last

    def run(self, requests: Sequence[bytes], backend: str, timeout: float) -> Ran:
        """Call it on one rank for each of `requests`.

        Raises:
            RunFailed: the ranks are without an answer, or a witness has noted other calls than they tell of.
        """
        if self._ledger is None:
            return self._worlds.run(self._pickled, requests, backend, timeout)
        self._prepare(_kind(requests))
        pids, self._pids = self._pids, ()
        if late := self._ledger.forget(pids):
            self.release()
            raise RunFailed(UNTOLD, f"a rank has called {late[0]} when its last run was over")
        ran = self._worlds.run(self._pickled, requests, backend, timeout)
        self._pids = self._worlds.pids(backend)
        page = self._ledger.read(self._pids)
        try:
            return Ran(ran.answers, page.confirmed(ran.calls), page.moments)
        except Contradiction as contradiction:
            raise RunFailed(UNTOLD, str(contradiction), calls=ran.calls) from None

    def _prepare(self, kind: str) -> None:
        """End ranks that cannot serve the next run: of another kind, or whose memory is to be measured."""
        if kind != self._kind or kind == IS_MEASURED:
            self.release()
        if kind == IS_MEASURED and len(self._pickled) > MOST_MEASURED:
            raise RunFailed(RAISED, _too_large(len(self._pickled)))
        self._worlds.capacity = 0 if kind == IS_MEASURED else CAPACITY  # a board is room to hide data in
        self._kind = os.environ[KIND] = kind

    def release(self) -> None:
        """End its ranks."""
        self._worlds.release()


def _too_large(nbytes: int) -> str:
    return (
        f"the code and the notebook's values that it refers to take {nbytes >> 20} MiB, and where memory is "
        f"measured at most {MOST_MEASURED >> 20} MiB: make large values on the ranks instead"
    )


def _kind(requests: Sequence[bytes]) -> str:
    return next((kind for name, kind in _KINDS.items() if any(name in request for request in requests)), "")


def _call(pickled: memoryview, request: memoryview) -> pickle.PickleBuffer:
    if os.environ.get(KIND) == IS_MEASURED:
        WitnessedProcessGroup.witness.ask({"measure": True}).wait()
    return call_on_rank(pickled, request)
