"""Takes the libraries that an exercise forbids out of a sandbox: from memory, from files, from compiled code.

`broker` calls this before it starts any process for students' code. What is left of torch moves data,
which the witness counts, or computes on one rank, which is what students are asked to write.
"""

from __future__ import annotations

import ctypes
import gc
import glob
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from autograder.inside import forbidden, isolation

_DIFFERENTIABLE = "_c10d_functional_autograd"  # collectives with a backward, as operators written in C++


def mask(names: Sequence[str]) -> None:
    """Mask these libraries for this process and all that it starts. It cannot be undone.

    Args:
        names: a union of lists of `forbidden`.
    """
    libraries = forbidden.listed(names)
    paths = [path for library in libraries for path in _paths(library)]
    if any(forbidden.is_part(loaded, libraries) for loaded in sys.modules):
        _empty_functions(paths)
    if "torch.nn.parallel" in libraries:
        setattr(c10d.Reducer, "__init__", _no_reducer)  # noqa: B010 - its constructor was all that referred to the compiled one
    if "torch.distributed._functional_collectives" in libraries:
        _replace_operators()
    forbidden.hide(names)
    isolation.hide_files([os.path.realpath(path) for path in paths])


def _paths(library: str) -> Iterator[str]:
    """Yield a package's folder, or a module's file and what Python has compiled from it."""
    try:
        spec = importlib.util.find_spec(library)
    except ModuleNotFoundError:  # a class or a function
        return
    if spec is None:
        return
    if spec.submodule_search_locations:
        yield from spec.submodule_search_locations
        return
    folder, file = os.path.split(str(spec.origin))
    yield str(spec.origin)
    yield from glob.glob(f"{glob.escape(folder)}/__pycache__/{file.removesuffix('.py')}.*.pyc")


def _empty_functions(paths: Sequence[str]) -> None:
    """Have all functions that were imported from there raise an error; their code is gone."""
    files = tuple(path if path.endswith(".py") else f"{path}/" for path in paths)
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename.startswith(files):
            function.__code__ = _raising(function)


def _raising(function: FunctionType) -> CodeType:
    """Make code that raises an error, for a function with the same names of its enclosing functions."""
    names = function.__code__.co_freevars
    enclosing: dict[str, Any] = {}
    exec(
        "def enclosing():\n"
        + "".join(f"    {name} = None\n" for name in names)
        + "    def function(*arguments, **keywords):\n"
        + "".join(f"        {name}\n" for name in names)
        + "        from autograder.inside.forbidden import raise_forbidden\n"
        + f"        raise_forbidden({f'{function.__module__}.{function.__qualname__}'!r})\n"
        + "    return function\n",
        enclosing,
    )
    code: CodeType = enclosing["enclosing"]().__code__
    return code


def _no_reducer(*arguments: object, **keywords: object) -> None:
    forbidden.raise_forbidden("torch.distributed.Reducer")


def _replace_operators() -> None:
    for name in ("all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor"):
        operator = f"{_DIFFERENTIABLE}.{name}"

        def refuse(*arguments: object, operator: str = operator) -> None:
            forbidden.raise_forbidden(f"torch.ops.{operator}")

        library = torch._C._dispatch_library("IMPL", _DIFFERENTIABLE, "Autograd", __file__, 0)
        library.impl(name, "Autograd", refuse, False)  # type: ignore[call-arg]
        # As long as it exists the operator is replaced: a reference that no code can find keeps it so.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
