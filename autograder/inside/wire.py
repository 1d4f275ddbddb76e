"""Plain data and tensors as bytes and back: all that crosses to or from a student's code goes through here.

A value is written as a one-byte tag followed by its content; a frame is that with its length in front.
Nothing is pickled or evaluated, and what arrives is checked before it is used: sizes, nesting, types, and
that the bytes of a tensor are as many as its shape and dtype say. `student` and
`student_process` are the callers.
"""

from __future__ import annotations

import itertools
import math
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

_MAGIC = b"4RW1"
_HEADER = struct.Struct("!4sQ")
_COUNT = struct.Struct("!Q")
_FLOAT = struct.Struct("!d")

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    )
}
_PLAIN = (bool, int, float, str, bytes, list, tuple, dict)
_KEY_TYPES = (type(None), bool, int, float, str)
_MAX_DIMS = 64
_MAX_NUMBER_KEYS = 1_000  # Whoever chooses them can have all of them collide: looking up n takes n² steps.
_TENSOR = 100  # values that a tensor counts for: to make one takes so much longer, and more memory
_LARGE = 1 << 16  # bytes that are rather sent apart than copied
_MAX_INT_BYTES = 1024


class WireError(ValueError):
    """A value that must not be sent, or bytes that do not say what they should."""


@dataclass(frozen=True)
class Limits:
    """What one frame may hold: bytes in all, levels of nesting, and values.

    Each element of a list counts as a value, and a tensor as 100.
    """

    nbytes: int = 1 << 30
    depth: int = 32
    values: int = 1_000_000


DEFAULT_LIMITS = Limits()
ANSWER = Limits(nbytes=1 << 28, values=5_000_000)  # what comes out of a sandbox: three times the largest one


def encode(value: object, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes of `value`.

    Allowed are None, bool, int, float, str, bytes, list, tuple, dict, numbers of numpy, and tensors. One of a
    subclass, such as `nn.Parameter` or a named tuple, is written as what it is a subclass of, a number of
    numpy as Python's, a memoryview of bytes as bytes. A tensor is written without its gradient; one on a GPU
    is copied to the CPU.

    Raises:
        WireError: for any other type, and for a value beyond `limits`.
    """
    return b"".join(_parts(value, limits))


def _parts(value: object, limits: Limits) -> list[bytes | memoryview]:
    writer = _Writer(limits)
    writer.write(value, limits.depth)
    return writer.parts


def decode(data: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> object:
    """The value whose bytes are `data`.

    Raises:
        WireError: when the bytes are not exactly one well-formed value within `limits`.
    """
    if len(data) > limits.nbytes:
        raise WireError(f"{len(data):,} bytes are more than the {limits.nbytes:,} allowed")
    reader = _Reader(memoryview(data), limits)
    value = reader.read(limits.depth)
    if reader.position != len(data):
        raise WireError(f"{len(data) - reader.position:,} bytes follow the value")
    return value


def send(connection: socket.socket, value: object, limits: Limits = DEFAULT_LIMITS) -> None:
    """Writes one frame; a peer that does not read for the socket's timeout raises TimeoutError."""
    parts = _parts(value, limits)
    send_parts(connection, [_HEADER.pack(_MAGIC, sum(map(len, parts))), *parts])


def send_parts(connection: socket.socket, parts: Iterable[bytes | memoryview]) -> None:
    """Writes one after the other: small ones in one piece, large ones without a copy."""
    for is_large, some in itertools.groupby(parts, lambda part: len(part) > _LARGE):
        for data in some if is_large else [b"".join(some)]:
            connection.sendall(data)


def receive(
    connection: socket.socket, timeout: float | None = None, limits: Limits = DEFAULT_LIMITS
) -> object:
    """Reads one frame, whole, within `timeout` seconds.

    Raises:
        EOFError: when the peer is gone.
        TimeoutError: when the whole frame is not there in time.
        WireError: when what arrives is not a frame, or more than `limits` allow.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    magic, length = _HEADER.unpack(receive_exactly(connection, _HEADER.size, deadline))
    if magic != _MAGIC:
        raise WireError("what arrived is not a frame")
    if length > limits.nbytes:
        raise WireError(f"a frame of {length:,} bytes is more than the {limits.nbytes:,} allowed")
    return decode(receive_exactly(connection, length, deadline), limits)


def receive_exactly(connection: socket.socket, length: int, deadline: float | None = None) -> bytearray:
    """The next so many bytes, all of them, until a time.monotonic().

    Raises:
        EOFError: when the peer is gone.
        TimeoutError: when they are not all there in time.
    """
    received = bytearray(length)
    rest = memoryview(received)
    while rest:
        if deadline is not None:
            # At least a millisecond: a timeout of 0 would make the socket non-blocking.
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        if (count := connection.recv_into(rest, 0, socket.MSG_WAITALL)) == 0:
            raise EOFError("the other side closed the connection")
        rest = rest[count:]
        if rest and deadline is not None and time.monotonic() > deadline:
            raise TimeoutError("the rest of the frame did not arrive in time")
    return received


class _Budget:
    """Counts what a frame holds against its limits, in the same way on both sides."""

    def __init__(self, limits: Limits) -> None:
        self._values_left = limits.values
        self._number_keys_left = _MAX_NUMBER_KEYS

    def take_value(self, depth: int, count: int = 1) -> None:
        if depth < 0:
            raise WireError("the value is nested too deeply, or contains itself")
        self._values_left -= count
        if self._values_left < 0:
            raise WireError("the value has too many parts")

    def take_key(self, key: object) -> None:
        if type(key) not in _KEY_TYPES:
            raise WireError(f"{_type_name(type(key))} cannot be the key of a dict here")
        self._number_keys_left -= isinstance(key, (int, float))
        if self._number_keys_left < 0:
            raise WireError(f"more than {_MAX_NUMBER_KEYS:,} keys of dicts are numbers")


class _Writer(_Budget):
    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.parts: list[bytes | memoryview] = []
        self.bytes_left = limits.nbytes

    def write(self, value: object, depth: int) -> None:
        kind = type(value)
        write = self._WRITERS.get(torch.Tensor if issubclass(kind, torch.Tensor) else kind)
        if write is None:
            value = _as_plain(value)
            write = self._WRITERS[type(value)]
        self.take_value(depth)
        write(self, value, depth)

    def _put(self, *parts: bytes | memoryview) -> None:
        self.bytes_left -= sum(map(len, parts))
        if self.bytes_left < 0:
            raise WireError("the value is too large")
        self.parts.extend(parts)

    def _put_sized(self, tag: bytes, content: bytes | memoryview) -> None:
        self._put(tag, _COUNT.pack(len(content)), content)

    def _none(self, value: None, depth: int) -> None:
        self._put(b"N")

    def _bool(self, value: bool, depth: int) -> None:
        self._put(b"T" if value else b"F")

    def _int(self, value: int, depth: int) -> None:
        length = value.bit_length() // 8 + 1
        if length > _MAX_INT_BYTES:
            raise WireError("an int of more than 8,000 bits is too large")
        self._put_sized(b"i", value.to_bytes(length, "big", signed=True))

    def _float(self, value: float, depth: int) -> None:
        self._put(b"f", _FLOAT.pack(value))

    def _str(self, value: str, depth: int) -> None:
        try:
            self._put_sized(b"s", value.encode())
        except UnicodeEncodeError as error:
            raise WireError(f"a str that is not valid Unicode: {error.reason}") from None

    def _bytes(self, value: bytes | memoryview, depth: int) -> None:
        self._put_sized(b"b", value)

    def _memoryview(self, value: memoryview, depth: int) -> None:
        if value.format != "B" or value.ndim != 1 or not value.contiguous:
            raise WireError("a memoryview of something else than bytes cannot be sent")
        self._bytes(value, depth)

    def _list(self, value: list, depth: int) -> None:
        self._sequence(b"l", value, depth)

    def _tuple(self, value: tuple, depth: int) -> None:
        self._sequence(b"t", value, depth)

    def _sequence(self, tag: bytes, value: list | tuple, depth: int) -> None:
        self._put(tag, _COUNT.pack(len(value)))
        for item in value:
            self.write(item, depth - 1)

    def _dict(self, value: dict, depth: int) -> None:
        self._put(b"d", _COUNT.pack(len(value)))
        for key, item in value.items():
            self.take_key(key)
            self.write(key, depth - 1)
            self.write(item, depth - 1)

    def _tensor(self, value: torch.Tensor, depth: int) -> None:
        self.take_value(depth, _TENSOR - 1)
        if type(value) is not torch.Tensor:
            value = _plain(value)
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise WireError(f"tensors of dtype {dtype} cannot be sent")
        if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
            raise WireError(
                f"only dense tensors with data can be sent, not {value.layout} on {value.device.type}"
            )
        if value.numel() * value.element_size() > self.bytes_left:
            raise WireError("the tensor is too large")  # before it is copied
        dense = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        self._put_sized(b"X", dtype.encode())
        self._put(_COUNT.pack(dense.dim()), *(_COUNT.pack(size) for size in dense.shape))
        self._put(memory_of(dense))

    _WRITERS = {
        type(None): _none,
        bool: _bool,
        int: _int,
        float: _float,
        str: _str,
        bytes: _bytes,
        memoryview: _memoryview,
        list: _list,
        tuple: _tuple,
        dict: _dict,
        torch.Tensor: _tensor,
    }


class _Reader(_Budget):
    def __init__(self, data: memoryview, limits: Limits) -> None:
        super().__init__(limits)
        self.data = data
        self.position = 0

    def read(self, depth: int) -> object:
        self.take_value(depth)
        tag = bytes(self._take(1))
        read = self._READERS.get(tag)
        if read is None:
            raise WireError(f"{tag!r} is not the tag of any type")
        return read(self, depth)

    def _take(self, length: int) -> memoryview:
        if length > len(self.data) - self.position:
            raise WireError(f"{length:,} bytes announced, {len(self.data) - self.position:,} there")
        self.position += length
        return self.data[self.position - length : self.position]

    def _count(self) -> int:
        return _COUNT.unpack(self._take(_COUNT.size))[0]

    def _sized(self) -> bytes:
        return bytes(self._take(self._count()))

    def _int(self, depth: int) -> int:
        content = self._sized()
        if len(content) > _MAX_INT_BYTES:
            raise WireError("an int of more than 8,000 bits is too large")
        return int.from_bytes(content, "big", signed=True)

    def _float(self, depth: int) -> float:
        return _FLOAT.unpack(self._take(_FLOAT.size))[0]

    def _str(self, depth: int) -> str:
        try:
            return self._sized().decode()
        except UnicodeDecodeError as error:
            raise WireError(f"a str that is not UTF-8: {error.reason}") from None

    def _list(self, depth: int) -> list:
        return [self.read(depth - 1) for _ in range(self._count())]

    def _dict(self, depth: int) -> dict:
        value = {}
        for _ in range(self._count()):
            key = self.read(depth - 1)
            self.take_key(key)
            if key in value:
                raise WireError("a dict with a key that is there twice")
            value[key] = self.read(depth - 1)
        return value

    def _tensor(self, depth: int) -> torch.Tensor:
        self.take_value(depth, _TENSOR - 1)
        dtype = _DTYPES.get(self._sized().decode(errors="replace"))
        num_dims = self._count()
        if dtype is None or num_dims > _MAX_DIMS:
            raise WireError("a tensor of no dtype or number of dims that can be sent")
        shape = [self._count() for _ in range(num_dims)]
        nbytes = (
            math.prod(shape) * dtype.itemsize
        )  # Python's integers: a product that overflows cannot slip through
        content = self._take(nbytes)
        if nbytes == 0:
            return _empty(shape, dtype)
        raw = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if dtype is torch.bool and bool((raw > 1).any()):
            raise WireError("a bool tensor with a value that is neither 0 nor 1")
        return raw.view(dtype).reshape(shape)

    _READERS = {
        b"N": lambda self, depth: None,
        b"T": lambda self, depth: True,
        b"F": lambda self, depth: False,
        b"i": _int,
        b"f": _float,
        b"s": _str,
        b"b": lambda self, depth: self._sized(),
        b"l": _list,
        b"t": lambda self, depth: tuple(self._list(depth)),
        b"d": _dict,
        b"X": _tensor,
    }


def _empty(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    try:
        return torch.empty(shape, dtype=dtype)
    except (RuntimeError, OverflowError, TypeError):  # no elements, but dims beyond what torch can count
        raise WireError("a tensor of a shape that no tensor can have") from None


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor of the CPU."""
    if tensor.numel() == 0:  # its strides may be 0, which torch does not view as bytes
        return memoryview(b"")
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


def _as_plain(value: object) -> object:
    """A number of numpy, or data of a subclass, as plain data.

    Raises:
        WireError: it is neither.
    """
    if isinstance(value, np.generic):
        value = value.item()
    kind = next((plain for plain in _PLAIN if isinstance(value, plain)), None)
    if kind is None:
        raise WireError(f"{_type_name(type(value))} is neither plain data nor a tensor")
    return kind(value)


def _plain(value: torch.Tensor) -> torch.Tensor:
    """The tensor behind one of a subclass, which has no say in this."""
    with torch._C.DisableTorchFunctionSubclass():
        if torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python):
            raise WireError(f"{_type_name(type(value))} is no tensor with data of its own")
        return value.detach().as_subclass(torch.Tensor)


def _type_name(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
