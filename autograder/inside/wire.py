"""Values as frames, and back: what checks, the sandbox and students' functions say to each other.

JSON has no tuples, no bytes, and texts only as keys: an object stands for each, and its names say what.
Bytes, long texts and tensors lie behind the JSON, in the order in which it names them. A message is checked
before it is used: sizes, nesting, types.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from autograder.inside import frames
from autograder.inside.frames import ANSWER, DEFAULT_LIMITS, Buffer, Bytes, FrameLimits, WireError

__all__ = [
    "ANSWER",
    "DEFAULT_LIMITS",
    "FrameLimits",
    "WireError",
    "decode",
    "encode",
    "receive",
    "send",
    "sendable",
]
_NAMES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
DTYPES = {getattr(torch, name): name for name in _NAMES.split()}
_KEY_TYPES = (type(None), bool, int, float, str)
_SAME_IN_JSON = (type(None), bool, float)
_MAX_NUMBER_KEYS = 1_000  # They can be chosen so that all collide: then looking up n takes n² steps.
_MAX_BITS = 8_000  # of an int
_LONG = 100  # characters of a text that lies behind the JSON


def encode(value: object, limits: FrameLimits = DEFAULT_LIMITS) -> bytes:
    """Return the frame of a value.

    Allowed are None, bool, int, float, str, bytes, list, tuple, dict, fractions, numbers of numpy, and
    tensors. One of a subclass, such as `nn.Parameter` or a named tuple, is written as what it is a subclass
    of, a fraction as a float, a number of numpy as Python's, also if an array without dimensions holds it, a
    memoryview of bytes as bytes. A tensor is written without its gradient; one on a GPU is copied to the CPU.

    Raises:
        WireError: for any other type, and for a value beyond `limits`.
    """
    return b"".join(_parts(value, limits))


def decode(frame: Bytes, limits: FrameLimits = DEFAULT_LIMITS) -> Any:
    """Return the value of a frame.

    Raises:
        WireError: the bytes are not exactly one well-formed value within `limits`.
    """
    return _value(*frames.unpack(frame, limits), limits)


def sendable(text: str) -> str:
    """Return a text as UTF-8 can have it, without halves of characters: names of files may have some."""
    return text.encode(errors="replace").decode()


def send(connection: socket.socket, value: object, limits: FrameLimits = DEFAULT_LIMITS) -> None:
    """Send a value; a peer that does not read for the socket's timeout raises TimeoutError."""
    frames.send_parts(connection, _parts(value, limits))


def receive(
    connection: socket.socket, timeout: float | None = None, limits: FrameLimits = DEFAULT_LIMITS
) -> Any:
    """Return the next value; `timeout` and what is raised are those of `frames.receive`."""
    return _value(*frames.receive(connection, timeout, limits), limits)


def _parts(value: object, limits: FrameLimits) -> list[Bytes]:
    encoder = _Encoder(limits)
    return frames.pack(encoder.plain(value, limits.depth), encoder.buffers, limits)


def _value(message: Any, buffers: list[Any], limits: FrameLimits) -> Any:
    decoder = _Decoder(buffers)
    value = decoder.value(message, limits.depth)
    if next(decoder.buffers, None) is not None:
        raise WireError("something follows the value")
    return value


class _Guard:
    """Holds what JSON does not limit to the same limits on both sides: nesting, and keys of dicts."""

    def __init__(self) -> None:
        self._number_keys_left = _MAX_NUMBER_KEYS

    def take_level(self, depth: int) -> None:
        if depth < 0:
            raise WireError("the value is nested too deeply, or contains itself")

    def take_key(self, key: object) -> None:
        if type(key) not in _KEY_TYPES:
            raise WireError(f"{_name(type(key))} cannot be the key of a dict here")
        self._number_keys_left -= isinstance(key, (int, float))
        if self._number_keys_left < 0:
            raise WireError(f"more than {_MAX_NUMBER_KEYS:,} keys of dicts are numbers")


class _Encoder(_Guard):
    """Makes of a value what JSON knows.

    Attributes:
        buffers: that follow the JSON.
    """

    def __init__(self, limits: FrameLimits) -> None:
        super().__init__()
        self.buffers: list[Buffer] = []
        self._bytes_left = limits.nbytes

    def plain(self, value: Any, depth: int) -> Any:
        self.take_level(depth)
        if type(value) in _SAME_IN_JSON:
            return value
        match value:
            case str():
                return self._text(str.__str__(value))  # enums have a __str__ of their own
            case int():
                return _require_small(int(value))
            case float():
                return float(value)
            case list():
                return self._list(value, depth)
            case tuple():
                return {"tuple": self._list(value, depth)}
            case dict():
                return self._dict(value, depth)
            case torch.Tensor():
                return self._tensor(value)
            case bytes() | memoryview():
                return self._behind("bytes", _require_bytes(value), len(value))
            case np.generic() if not isinstance(item := value.item(), np.generic):  # as of a longdouble
                return self.plain(item, depth)
            case np.ndarray() if value.ndim == 0:
                return self.plain(value[()], depth - 1)
            case Fraction():
                return _as_float(value)
        raise WireError(f"{_name(type(value))} is neither plain data nor a tensor")

    def _list(self, items: Iterable[Any], depth: int) -> list[Any]:
        return [self.plain(item, depth - 1) for item in items]

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        for key in value:
            self.take_key(key)
        return {"keys": self._list(value, depth), "values": self._list(value.values(), depth)}

    def _text(self, text: str) -> Any:
        _require_unicode(text)
        return text if len(text) <= _LONG else self._behind("text", text.encode(), len(text))

    def _tensor(self, value: torch.Tensor) -> Any:
        tensor = value if type(value) is torch.Tensor else _own(value)
        if tensor.is_nested:
            raise WireError("nested tensors cannot be sent")
        if tensor.dtype not in DTYPES:
            raise WireError(f"tensors of dtype {str(tensor.dtype).removeprefix('torch.')} cannot be sent")
        kind, layout = tensor.device.type, tensor.layout
        if layout is not torch.strided or kind not in ("cpu", "cuda"):
            raise WireError(f"only dense tensors with data can be sent, not {layout} on {kind}")
        named = self._behind("tensor", tensor, tensor.numel() * tensor.element_size())
        self.buffers[-1] = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return named

    def _behind(self, kind: str, buffer: Buffer, nbytes: int) -> dict[str, str]:
        self._bytes_left -= nbytes
        if self._bytes_left < 0:  # before it is copied
            raise WireError(f"the {kind if kind == 'tensor' else 'value'} is too large")
        self.buffers.append(buffer)
        return {"behind": kind}


class _Decoder(_Guard):
    """Makes a value of what JSON knows.

    Attributes:
        buffers: that follow the JSON and have not been named yet.
    """

    def __init__(self, buffers: Iterable[Any]) -> None:
        super().__init__()
        self.buffers = iter(buffers)

    def value(self, plain: Any, depth: int) -> Any:
        self.take_level(depth)
        if type(plain) in _SAME_IN_JSON or type(plain) is int:
            return plain
        match plain:
            case str():
                return _require_unicode(plain)
            case list():
                return self._list(plain, depth)
            case {"tuple": list(items)}:
                return tuple(self._list(items, depth))
            case {"keys": list(keys), "values": list(values)} if len(keys) == len(values):
                return self._dict(keys, values, depth)
            case {"behind": "tensor"} if (tensor := self._next(torch.Tensor)).dtype in DTYPES:
                return tensor
            case {"behind": "bytes"}:
                return bytes(self._next(memoryview))
            case {"behind": "text"}:
                return _decoded(self._next(memoryview))
        raise WireError("what arrived is not a value")

    def _list(self, items: list[Any], depth: int) -> list[Any]:
        return [self.value(item, depth - 1) for item in items]

    def _dict(self, keys: list[Any], values: list[Any], depth: int) -> dict[Any, Any]:
        value: dict[Any, Any] = {}
        for key, item in zip(self._list(keys, depth), values, strict=True):
            self.take_key(key)
            if key in value:
                raise WireError("a dict with a key that is there twice")
            value[key] = self.value(item, depth - 1)
        return value

    def _next(self, kind: type[Any]) -> Any:
        buffer = next(self.buffers, None)
        if not isinstance(buffer, kind):
            raise WireError(f"a {kind.__name__} is named that is not there")
        return buffer


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise WireError("a Fraction is too large for a float") from None


def _require_small(number: int) -> int:
    if number.bit_length() >= _MAX_BITS:
        raise WireError("an int of more than 8,000 bits is too large")
    return number


def _require_unicode(text: str) -> str:
    try:
        if not text.isascii():
            text.encode()
        return text
    except UnicodeEncodeError as error:
        raise WireError(f"a str that is not valid Unicode: {error.reason}") from None


def _require_bytes(value: bytes | memoryview) -> bytes | memoryview:
    if type(value) is memoryview and (value.format != "B" or value.ndim != 1 or not value.contiguous):
        raise WireError("a memoryview of something else than bytes cannot be sent")
    return value


def _decoded(content: memoryview) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"a str that is not UTF-8: {error.reason}") from None


def _own(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor behind one of a subclass, which has no say in this."""
    with torch._C.DisableTorchFunctionSubclass():
        if torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python):
            raise WireError(f"{_name(type(value))} is no tensor with data of its own")
        return value.detach().as_subclass(torch.Tensor)


def _name(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
