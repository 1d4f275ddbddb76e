"""Values on their way between the notebook and its ranks.

A small value travels inside its message. A large one is written once into a file in memory, big arrays and
tensors after the pickle, and each process that gets the file's descriptor maps it: there is no second copy,
and a value for all ranks lies in memory once. Used at both ends; `messages` carries the parcels.
"""

from __future__ import annotations

import dis
import functools
import importlib
import io
import os
import pickle
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import cloudpickle

from . import memory
from .memory import MemoryFile

SMALL = 1 << 16  # bytes that travel in the message itself
_ALIGNMENT = 64  # bytes, for the vector instructions of code that computes with what was mapped
_LOOKED_UP_IN_CLASSES = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")  # the latter since Python 3.12
_CHUNK = 1 << 26  # bytes written at a time; an interrupt can come in between


class Parcel:
    """A pickled value and the buffers that belong to it. Make one with `pack`.

    Attributes:
        sizes: bytes of the pickle, then of each buffer.
        content: all of these, one after the other, when they are small; None when they lie in `file`.
        file: set by the channel on arrival.
    """

    def __init__(self, sizes: list[int], content: bytes | None, file: MemoryFile | None = None) -> None:
        self.sizes, self.content, self.file = sizes, content, file

    def __reduce__(self) -> tuple[type[Parcel], tuple[list[int], bytes | None]]:
        return Parcel, (self.sizes, self.content)  # the file's descriptor travels apart

    def whole(self) -> Parcel:
        """Return a parcel of the same value that takes no file along."""
        return self if self.file is None else Parcel(self.sizes, bytes(self.file.map()))

    def unpack(self) -> Any:
        """Return the value. It can be changed, and shares nothing with the sender's.

        Raises:
            OSError: there is no room for it in memory.
        """
        whole = memoryview(bytearray(self.content or b"")) if self.file is None else self.file.map()
        pickled, *buffers = (whole[start:end] for start, end in _places(self.sizes))
        return pickle.loads(pickled, buffers=buffers)


def pack(value: Any) -> Parcel:
    """Pickle a value, functions and classes of the notebook by value, GPU tensors as CPU tensors.

    Raises:
        Exception: whatever the parts of the value raise when they cannot be pickled.
        OSError: there is no room for it in memory.
    """
    stream = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(stream, buffer_callback=buffers.append).dump(_compact(value))
    parts = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
    sizes = [part.nbytes for part in parts]
    if sum(sizes) > SMALL:
        return Parcel(sizes, None, _written(parts, sizes))
    content = bytearray(list(_places(sizes))[-1][1])
    for (start, end), part in zip(_places(sizes), parts, strict=True):
        content[start:end] = part
    return Parcel(sizes, bytes(content))


def dumps(value: Any) -> bytes:
    """Pickle a value as `pack` does, in one piece.

    Raises:
        Exception: whatever the parts of the value raise when they cannot be pickled.
    """
    stream = io.BytesIO()
    _Pickler(stream).dump(value)
    return stream.getvalue()


def _places(sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return where each part begins and ends, one after the other, aligned."""
    end = 0
    for size in sizes:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = start + size
        yield start, end


def _written(parts: list[memoryview], sizes: list[int]) -> MemoryFile:
    file = MemoryFile(memory.create())
    for (start, end), part in zip(_places(sizes), parts, strict=True):
        while start < end:
            start += os.pwrite(file.descriptor, part[: min(_CHUNK, end - start)], start)
            part = part[len(part) - (end - start) :]
    memory.finish(file.descriptor)
    return file


# --- functions -------------------------------------------------------------------------------------------


class _Deferred:
    """Calls a function that is not there yet: it may refer to the one that remembers its results."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


_Remembering: TypeAlias = "functools._lru_cache_wrapper[Any]"


def _remembering(parameters: dict[str, Any]) -> _Remembering:
    remembering: _Remembering = functools.lru_cache(**parameters)(_Deferred())
    return remembering


def _set_function(remembering: _Remembering, function: Callable[..., Any]) -> None:
    deferred = remembering.__wrapped__
    assert isinstance(deferred, _Deferred)
    deferred.function = function
    functools.update_wrapper(remembering, function)


def _with_names_in_classes(function: types.FunctionType, reduced: Any) -> Any:
    """Add the global names that bodies of classes in a function read: cloudpickle looks for others' only."""
    if reduced is not NotImplemented:
        _, slots = reduced[2]
        names = [name for name in _read_by_classes(function.__code__) if name in function.__globals__]
        slots["__globals__"].update({name: function.__globals__[name] for name in names})
    return reduced


def _read_by_classes(code: types.CodeType) -> Iterator[str]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            steps = dis.get_instructions(inner)
            yield from (step.argval for step in steps if step.opname in _LOOKED_UP_IN_CLASSES)
            yield from _read_by_classes(inner)


def _code(file: str, make: Callable[..., types.CodeType], parts: tuple[Any, ...]) -> types.CodeType:
    return make(*parts).replace(co_filename=file)


# --- tensors ---------------------------------------------------------------------------------------------


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Takes the memory of tensors as it is, apart from the pickle; `torch.save` would copy it several times.

    Functions and attributes that remember their results travel by value, and forget them.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == "__main__":
            return _remembering, (value.cache_parameters(),), value.__wrapped__, None, None, _set_function
        if type(value) is types.FunctionType:
            return _with_names_in_classes(value, super().reducer_override(value))
        if type(value) is types.CodeType:  # cloudpickle 3.1.3 forgets the file, by which errors show lines
            return _code, (value.co_filename, *self.dispatch_table[types.CodeType](value))
        if type(value) is functools.cached_property:  # it has a lock, before Python 3.12
            return functools.cached_property, (value.func,), {"attrname": value.attrname}
        if type(value) is weakref.WeakKeyDictionary:  # what functools.singledispatch remembers
            return weakref.WeakKeyDictionary, (dict(value),)
        if isinstance(value, types.ModuleType) and (parent := _parent_of(value)):
            # torch._C._functions, for instance, comes along with torch's once_differentiable
            return getattr, (parent, value.__name__.rpartition(".")[2])
        if isinstance(value, types.ModuleType) and type(value) is not types.ModuleType:
            # torch.distributed.config is one, and comes along with any function that says `.config`
            return importlib.import_module, (value.__name__,)
        if type(value) is typing.NewType and value.__module__ == "__main__":
            return typing.NewType, (value.__name__, value.__supertype__)
        if type(value) is types.MappingProxyType:
            return types.MappingProxyType, (dict(value),)
        if type(value).__module__ == "IPython.core.autocall":  # exit and quit, as the notebook has them
            return getattr, (sys, "exit")
        if torch := _torch():
            if isinstance(value, torch.Tensor) and value.is_cuda:  # the notebook does not touch the GPUs
                return value.cpu().__reduce_ex__(self.proto)
            if isinstance(value, (torch.finfo, torch.iinfo)):
                return type(value), (getattr(torch, value.dtype),)
            if isinstance(value, torch.TypedStorage) and value._untyped_storage.device.type == "cpu":
                return _typed_storage, (value._untyped_storage, value.dtype)
            if isinstance(value, torch.UntypedStorage) and value.device.type == "cpu":
                return _storage, (pickle.PickleBuffer(torch.empty(0, dtype=torch.uint8).set_(value).numpy()),)
        return super().reducer_override(value)


def _parent_of(module: types.ModuleType) -> types.ModuleType | None:
    """Return the module that this one is an attribute of, where it cannot be imported by its name."""
    package, _, name = module.__name__.rpartition(".")
    parent = sys.modules.get(package)
    is_its = module.__name__ not in sys.modules and getattr(parent, name, None) is module
    return parent if is_its else None


def _torch() -> types.ModuleType | None:
    """Return torch if this process uses it; the notebook may do without."""
    if "torch" not in sys.modules:
        return None
    import torch  # waits for another thread that is still importing it

    return torch


def _compact(value: Any) -> Any:
    """Make a tensor that is a part of a larger one a tensor of its own: the rest need not travel."""
    torch = _torch()
    if not torch or type(value) is not torch.Tensor or value.layout is not torch.strided or not value.is_cpu:
        return value
    if value.untyped_storage().nbytes() <= value.nbytes:
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _storage(buffer: Any) -> Any:
    """Make a storage of these bytes: a small one owns its memory, and can grow; a large one is mapped."""
    import torch

    storage = torch.UntypedStorage(0)
    if len(buffer):
        mapped = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
        storage = mapped if len(buffer) > SMALL else mapped.clone()
    return torch.TypedStorage(wrap_storage=storage, dtype=torch.uint8, _internal=True)


def _typed_storage(storage: Any, dtype: Any) -> Any:
    import torch

    return torch.TypedStorage(wrap_storage=storage._untyped_storage, dtype=dtype, _internal=True)
