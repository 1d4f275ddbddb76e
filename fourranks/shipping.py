"""What the notebook sends to its ranks: functions by value, variables, the text of its cells."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import cloudpickle

from .errors import FourRanksError


def pickled_call(function: Callable[..., Any], args: tuple, kwargs: dict) -> bytes:
    """A call, with its function by value, as bytes.

    Raises:
        FourRanksError: something in it cannot travel.
    """
    return pickled((function, args, kwargs), f"{getattr(function, '__name__', function)!s} and its arguments")


def pickled(value: Any, what: str) -> bytes:
    """A value as bytes.

    Args:
        value: what to send.
        what: what the error calls it.

    Raises:
        FourRanksError: it cannot travel.
    """
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        raise FourRanksError(
            f"{what} cannot be sent to the ranks ({error}). Open files, locks and other live objects cannot "
            "travel: make them on the ranks instead."
        ) from None


def notebook_sources() -> dict[str, str]:
    """Text of the notebook's cells, so that a traceback on a rank can show their lines."""
    return {
        name: "".join(entry[2])
        for name, entry in list(linecache.cache.items())
        if len(entry) == 4 and ("ipykernel" in name or name.startswith("<ipython-input"))
    }
