"""Names that exercises forbid because they hold the answer, and stand-ins where students' code is checked.

Code may import a stand-in and pass it around; calling it raises `ForbiddenLibrary`, which says why. At home
this is a courtesy to honest students. `masking` is the wall for everyone else.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABCMeta
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

# Where else torch 2.13 has the same.
ALSO = {
    "torch.nn.parallel": (
        "torch.nn.DataParallel",
        "torch.distributed.Reducer",
        "torch._C._distributed_c10d.Reducer",
        "torch.distributed._composable",
    ),
    "torch.distributed.fsdp": ("torch.distributed._composable",),
    "torch.utils.checkpoint.checkpoint": (
        "torch.utils.checkpoint.CheckpointFunction",
        "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
    ),
    "torch.distributed.device_mesh": ("torch.distributed.init_device_mesh", "torch.distributed.DeviceMesh"),
    "torch.distributed.tensor": ("torch.distributed._tensor", "torch.distributed._shard"),
    "torch.distributed._functional_collectives": ("torch.distributed._functional_collectives_impl",),
}


class ForbiddenLibrary(ImportError):
    """Code that is being checked has used a library that holds the answer."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not there while code is checked: this exercise asks you to write what it does"
        )


def raise_forbidden(name: str) -> NoReturn:
    """Raise the error of a forbidden library."""
    raise ForbiddenLibrary(name)


class StandIn(ABCMeta):
    """The class of stand-ins for classes and functions: they have attributes, subclasses, no instances."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> None:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            return  # other parts of torch, when they are imported, register themselves with this library
        original = next(base for base in reversed(cls.__mro__) if type(base) is StandIn)
        raise_forbidden(f"{original.__module__}.{original.__qualname__}")

    def __getattr__(cls, name: str) -> StandIn:
        return _made(cls, name, cls.__module__, f"{cls.__qualname__}.{name}")


class _Library(ModuleType):
    """A stand-in for a module."""

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)

    def __getattr__(self, name: str) -> StandIn:
        return _made(self, name, self.__name__, name)


def _made(owner: StandIn | _Library, name: str, module: str, qualname: str) -> StandIn:
    """Make a stand-in, kept as an attribute so that it can be pickled by its name."""
    if name.startswith("__"):  # Python asks modules and classes for much that few of them have
        raise AttributeError(name)
    made = StandIn(name, (), {"__module__": module, "__qualname__": qualname})
    setattr(owner, name, made)
    return made


class _Finder(MetaPathFinder, Loader):
    """Finds stand-ins for modules, and all that they might contain."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "torch._inductor.comm_lowering":  # relies on FSDP to have imported this
            importlib.import_module("torch.distributed._symmetric_memory")
        return ModuleSpec(name, self, is_package=True) if is_part(name, self.names) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Library(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: a stand-in has no code."""


_finder = _Finder()


def listed(names: Sequence[str]) -> list[str]:
    """Return these names, and where else the same is found."""
    return list(dict.fromkeys(each for name in names for each in (name, *ALSO.get(name, ()))))


def is_part(name: str, libraries: Sequence[str] | frozenset[str]) -> bool:
    """Tell whether a name is one of these libraries, or within one."""
    return any(name == library or name.startswith(f"{library}.") for library in libraries)


def hide(names: Sequence[str]) -> None:
    """Put stand-ins in the place of these libraries, in this process and those that are forked from it."""
    libraries = listed(names)
    _finder.names |= frozenset(libraries)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for loaded in [loaded for loaded in sys.modules if is_part(loaded, libraries)]:
        if not isinstance(sys.modules[loaded], _Library):
            del sys.modules[loaded]
    for library in libraries:
        parent, _, name = library.rpartition(".")
        owner = importlib.import_module(parent)
        if isinstance(getattr(owner, name, owner), ModuleType):
            setattr(owner, name, importlib.import_module(library))
        elif not isinstance(getattr(owner, name), StandIn):
            setattr(owner, name, StandIn(name, (), {"__module__": parent}))
