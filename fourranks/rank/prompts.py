"""Refuses `input`, `getpass` and debuggers: a rank has no terminal at which somebody could answer."""

from __future__ import annotations

import builtins
import getpass
import pdb
import sys
from typing import Any

from IPython.core.error import StdinNotImplementedError, UsageError

_INPUT, _GETPASS, _INTERACTION = builtins.input, getpass.getpass, pdb.Pdb.interaction
_NO_DEBUGGER = (
    "does not work on a rank, where nobody can type. Print what you want to know, or bring it to the "
    "notebook by `%%ranks --out`."
)


def refuse() -> None:
    """Have this process refuse them."""
    builtins.input = _no_input  # type: ignore[assignment]  # it names its parameter, which is positional
    getpass.getpass = _no_getpass
    sys.breakpointhook = _no_debugger
    pdb.Pdb.interaction = _no_debugger  # type: ignore[method-assign]  # all of them end here, torch's own too


def allow() -> None:
    """Have a program find them as Python has them."""
    builtins.input, getpass.getpass, sys.breakpointhook = _INPUT, _GETPASS, sys.__breakpointhook__
    pdb.Pdb.interaction = _INTERACTION  # type: ignore[method-assign]


def refuse_magic(*_: str) -> None:
    """Stand in for %debug and %pdb."""
    raise UsageError(f"A debugger {_NO_DEBUGGER}")


def _no_input(prompt: str = "") -> str:
    raise StdinNotImplementedError(
        "input() does not work on a rank. Ask in a cell without %%ranks, answer = input(), and hand the "
        "answer over: %ranks push answer"
    )


def _no_getpass(*_: Any, **__: Any) -> str:
    raise StdinNotImplementedError(
        "getpass() does not work on a rank. Ask in a cell without %%ranks, answer = getpass.getpass(), and "
        "hand the answer over: %ranks push answer"
    )


def _no_debugger(*_: Any, **__: Any) -> None:
    raise StdinNotImplementedError(f"A debugger {_NO_DEBUGGER}")
