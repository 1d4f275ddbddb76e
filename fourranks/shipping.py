"""Packs for the ranks: functions by value, variables, the notebook's cells."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

from .errors import FourRanksError
from .protocol.parcel import Parcel, pack
from .protocol.places import NotebookCell, know_cells


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


def notebook_cells() -> dict[str, NotebookCell]:
    """Return the notebook's cells by file: ranks name and show their lines, and so does this process now."""
    if "IPython" not in sys.modules:
        return {}
    from IPython import get_ipython

    if (shell := get_ipython()) is None:
        return {}
    names = {file: shell.compile.format_code_name(file) for file in list(linecache.cache)}
    cells = {
        file: NotebookCell(" ".join(name), "".join(linecache.getlines(file)))
        for file, name in names.items()
        if name is not None
    }
    know_cells(cells)
    return cells
