"""A student's function as the bytes that it was shipped in. Only ranks unpickle them, and so run its code.

`interpreter` keeps one for each function that is checked.
"""

from __future__ import annotations

import pickle

from autograder.sandbox.isolation import keep_apart
from autograder.student import NotebookFunction, call_on_rank

# The ranks of these drivers write files that others read, as the exercise asks them to.
_SHARING_FILES = b"autograder.drivers.checkpoints:"


class ShippedFunction(NotebookFunction):
    """A function of another process.

    Args:
        pickled: what cloudpickle made of it.
        confined: whether its ranks are kept from passing each other anything but by the network.
    """

    def __init__(self, pickled: bytes, confined: bool) -> None:
        super().__init__(pickled)
        self._entry = _call_alone if confined else _call


def _call(pickled: bytes, request: bytes) -> bytes:
    return call_on_rank(pickle.loads(pickled), request)


def _call_alone(pickled: bytes, request: bytes) -> bytes:
    keep_apart(shares_files=_SHARING_FILES in request)
    return _call(pickled, request)
