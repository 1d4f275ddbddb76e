"""Keeps `torch.compile` out of the code that records calls.

The compiler traces the Python code that runs below a compiled function. Where it meets a method of torch's
own process group, which is C++, it ends one graph and begins another after the call. The methods of a
recording process group are Python, which the compiler must leave alone, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

from torch._C._dynamo import eval_frame

# As `torch.compiler.disable` does, but without importing the compiler, which takes more than a second.
_SKIP = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)


def leave_uncompiled(functions: Iterable[Any]) -> None:
    """Have the compiler leave these functions, and all that they call, as they are."""
    for function in functions:
        if isinstance(function, FunctionType):
            vars(function)["_torchdynamo_disable"] = True  # as long as it traces a caller
            eval_frame.set_code_exec_strategy(function.__code__, _SKIP)  # and when the call is made
