"""Runs a program in a rank as Python runs it in a process of its own: `fourranks run` asks for it.

Its module is `__main__` and stays so.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import inspect
import os
import platform
import sys
import threading
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import torch
from torch.distributed import distributed_c10d

from ..protocol.messages import Launch, Settings
from .telling import without_own_frames

_PYTHONS_HOOK = sys.excepthook


def prepare(settings: Settings) -> None:
    """Give the process what torchrun's has where ranks for cells have something else."""
    sys.excepthook = _PYTHONS_HOOK  # torch has put its own around it, for the group of before
    os.environ.pop("MPLBACKEND")
    if chosen := settings.environment.get("MPLBACKEND"):
        os.environ["MPLBACKEND"] = chosen
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        torch.set_num_threads(int(threads))


def run(program: Launch) -> None:
    """Run a program to its end, and to that of its threads.

    Raises:
        SystemExit: it has left with an exit status that tells of a failure.
        ImportError: there is no such module.
        OSError: the script cannot be read on this machine.
        Exception: raised by the program.
    """
    try:
        _run(program)
    except SystemExit as leaving:
        if leaving.code:
            raise
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # as Python does; multiprocessing calls it, too


def call_hook(error: BaseException) -> BaseException:
    """Call the program's own `sys.excepthook`, if it has one; return the error that it ends with then."""
    hook = sys.excepthook
    while getattr(hook, "__module__", "") == distributed_c10d.__name__:  # torch's, around the one before
        hook = inspect.getclosurevars(hook).nonlocals["old_hook"]
    if hook is _PYTHONS_HOOK or isinstance(error, SystemExit):
        return error
    try:
        error.__traceback__ = without_own_frames(error.__traceback__)
        hook(type(error), error, error.__traceback__)
    except BaseException as other:
        return other
    return error


def finish() -> None:
    """Call what is to be called at the end of the process, which comes when all ranks are through."""
    atexit._run_exitfuncs()


def leave() -> None:
    """End the process as Python does: it takes apart what is left, which writes out files that are open."""
    if "triton" in sys.modules:
        gc.unfreeze()  # its library prints a list of all that is still there in the end
    ctypes.pythonapi.Py_Exit(0)


def _run(program: Launch) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if program.is_module:
        sys.path.insert(0, os.getcwd())
        spec = _spec(program.name)
        assert spec.loader is not None
        main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
        name, path = spec.name, str(spec.origin)
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]  # only what lies in a file has it
        if code is None:  # as of a library in C
            raise ImportError(f"the module {name} has no code of Python's that can be run", name=name)
    else:
        path = os.path.abspath(program.name)
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        code = compile(_script(path), path, "exec", dont_inherit=True)
    main.__file__ = path
    sys.argv = [path if program.is_module else program.name, *program.arguments]
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _script(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        machine = f"{platform.node()}, where this rank is: a script must lie at the same path on every node"
        raise type(error)(f"{error.strerror}: {path} on {machine}") from None


def _spec(name: str) -> ModuleSpec:
    """Find a module that can be run; that of a package is its `__main__`."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        return _spec(f"{name}.__main__")
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError(f"there is no module {name} that can be run", name=name)
    return spec
