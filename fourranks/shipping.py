"""What the notebook sends to its ranks: functions by value, variables, the text of its cells."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from .errors import FourRanksError
from .protocol.parcel import Parcel, pack


def packed_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parcel:
    """Pack a call, with its function by value.

    Raises:
        FourRanksError: something in it cannot travel.
    """
    try:
        return pack((function, args, kwargs))
    except Exception as error:
        raise _refusal(f"{getattr(function, '__name__', function)!s} and its arguments", error) from None


def packed_variables(variables: dict[str, Any]) -> Parcel:
    """Pack variables by name; those that share an object share it on the ranks, too.

    Raises:
        FourRanksError: one of them cannot travel.
    """
    try:
        return pack(variables)
    except Exception as error:
        raise _refusal(_culprit(variables), error) from None


def _culprit(variables: dict[str, Any]) -> str:
    """Name the first variable that cannot travel."""
    for name, value in variables.items():
        try:
            pack(value)
        except Exception:
            return f"The variable {name!r}"
    return "The variables"  # each fits, and all together do not


def _refusal(what: str, error: Exception) -> FourRanksError:
    return FourRanksError(
        f"{what} cannot be sent to the ranks ({error}). Open files, locks and other live objects cannot "
        "travel: make them on the ranks instead."
    )


def notebook_sources() -> dict[str, str]:
    """Return the text of the notebook's cells, so that a traceback on a rank can show their lines."""
    return {
        name: "".join(entry[2])
        for name, entry in list(linecache.cache.items())
        if len(entry) == 4 and ("ipykernel" in name or name.startswith("<ipython-input"))
    }
