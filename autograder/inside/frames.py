"""Messages as JSON, followed by the bytes of tensors: the form of all data to and from students' code.

`wire` puts values of any kind into frames; a rank and its witness exchange frames of their own. Nothing that
arrives is unpickled or evaluated. JSON announces no counts, so its parser takes no more memory than the parts
that have really come need, and those are counted before it begins.
"""

from __future__ import annotations

import itertools
import json
import math
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MOST_TEXT = 1 << 26  # bytes of JSON in a frame
TENSOR = 100  # parts that a tensor counts for: to make one takes so much longer, and more memory
_HEADER = struct.Struct("!4sQQ")  # magic, bytes of the text, bytes behind it
_MAGIC = b"4RW1"
_ALIGNED = 16  # bytes at a multiple of which each buffer begins
_LARGE = 1 << 16  # bytes that are rather sent apart than copied
_LATE = "the rest of the frame did not arrive in time"
_MOST_DIMS = 64
_MOST_DIGITS = 2_500  # of an int
_DTYPES = {
    str(dtype): dtype
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and not name.startswith("q")  # quantized: more than their bytes
}

Bytes = bytes | bytearray | memoryview
Buffer = torch.Tensor | Bytes


class WireError(ValueError):
    """A value that must not be sent, or bytes that do not say what they should."""


@dataclass(frozen=True)
class FrameLimits:
    """Limits of one frame.

    Attributes:
        depth: levels of nesting of a value.
        parts: elements of lists and dicts, each list and dict itself, and 100 for a tensor.
    """

    nbytes: int = 1 << 30
    depth: int = 32
    parts: int = 1_000_000


DEFAULT_LIMITS = FrameLimits()
ANSWER = FrameLimits(nbytes=1 << 28, parts=5_000_000)  # of a sandbox: three times the largest one


def dtype_of(name: object) -> torch.dtype:
    """Return the dtype with this name.

    Raises:
        WireError: there is none.
    """
    if type(name) is not str or name not in _DTYPES:
        raise WireError("no dtype")
    return _DTYPES[name]


def _int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:  # to read them takes time that grows with their square
        raise WireError("an int of more than 8,000 bits is too large")
    return int(digits)


_PARSER = json.JSONDecoder(parse_int=_int)


# --- over a socket ----------------------------------------------------------------------------------------


def send(connection: socket.socket, message: Any, buffers: Sequence[Buffer] = ()) -> None:
    """Send a message of what JSON knows, and contiguous tensors of the CPU."""
    send_parts(connection, pack(message, buffers))


def send_parts(connection: socket.socket, parts: Iterable[Bytes]) -> None:
    """Send the parts of a frame: small ones in one piece, large ones without a copy."""
    for is_large, some in itertools.groupby(parts, lambda part: len(part) > _LARGE):
        for data in some if is_large else [b"".join(some)]:
            connection.sendall(data)


def receive(
    connection: socket.socket, timeout: float | None = None, limits: FrameLimits = DEFAULT_LIMITS
) -> tuple[Any, list[Any]]:
    """Return the next message, and its tensors and memoryviews, when all of it has come.

    Raises:
        EOFError: the peer is gone.
        TimeoutError: the frame is not there, whole, within `timeout` seconds.
        WireError: the bytes that arrive are not a frame, or more than `limits` allow.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    text, behind = _lengths(_receive_exactly(connection, _HEADER.size, deadline), limits)
    return _unpacked(_receive_exactly(connection, text + behind, deadline), text, limits)


def _receive_exactly(connection: socket.socket, length: int, deadline: float | None) -> bytearray:
    received = bytearray(length)
    rest = memoryview(received)
    while rest:
        if deadline is not None:
            # At least a millisecond: a timeout of 0 would make the socket non-blocking.
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            count = connection.recv_into(rest, 0, socket.MSG_WAITALL)
        except TimeoutError:
            raise TimeoutError(_LATE) from None
        if count == 0:
            raise EOFError("the other side closed the connection")
        rest = rest[count:]
        if rest and deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(_LATE)
    return received


# --- as bytes ---------------------------------------------------------------------------------------------


def pack(message: Any, buffers: Sequence[Buffer], limits: FrameLimits = DEFAULT_LIMITS) -> list[Bytes]:
    """Return the parts of a frame, those of the buffers without a copy.

    Raises:
        WireError: the frame is beyond `limits`.
    """
    text = json.dumps([message, list(map(_form, buffers))]).encode("ascii")
    text = text.ljust(len(text) + -len(text) % _ALIGNED)
    _require_few_parts(text, len(buffers), limits)
    behind = [part for buffer in buffers for part in _aligned(_memory(buffer))]
    header = _HEADER.pack(_MAGIC, len(text), sum(map(len, behind)))
    _lengths(header, limits)
    return [header, text, *behind]


def unpack(frame: Bytes, limits: FrameLimits = DEFAULT_LIMITS) -> tuple[Any, list[Any]]:
    """Return the message of a frame, and its tensors and memoryviews, in memory of their own.

    Raises:
        WireError: the bytes are not exactly one frame within `limits`.
    """
    text, behind = _lengths(frame[: _HEADER.size], limits)
    body = bytearray(memoryview(frame)[_HEADER.size :])
    if len(body) != text + behind:
        raise WireError(f"{text + behind:,} bytes announced, {len(body):,} there")
    return _unpacked(body, text, limits)


def _form(buffer: Buffer) -> list[str | int] | int:
    return [str(buffer.dtype), *buffer.shape] if isinstance(buffer, torch.Tensor) else len(buffer)


def _memory(buffer: Buffer) -> Bytes:
    if not isinstance(buffer, torch.Tensor):
        return buffer
    if buffer.numel() == 0:  # its strides may be 0, which torch does not view as bytes
        return b""
    flat = buffer.reshape(-1)
    if flat.stride(0) != 1:  # that of a single element may be any number, which torch does not view as bytes
        flat = flat.clone(memory_format=torch.contiguous_format)
    raw = flat.view(torch.uint8)
    if buffer.dtype is torch.bool:  # a sum that Gloo has made of some has larger bytes
        raw = (raw != 0).view(torch.uint8)
    shared: Any = raw.numpy()  # which typeshed takes for a buffer from Python 3.12 on
    return memoryview(shared)


def _aligned(memory: Bytes) -> tuple[Bytes, bytes]:
    return memory, bytes(-len(memory) % _ALIGNED)


def _lengths(header: Bytes, limits: FrameLimits) -> tuple[int, int]:
    """Return how many bytes of text follow a header, and how many behind it."""
    if len(header) < _HEADER.size or header[:4] != _MAGIC:
        raise WireError("what arrived is not a frame")
    _, text, behind = _HEADER.unpack(header)
    if text > MOST_TEXT or text + behind > limits.nbytes:
        raise WireError(f"a frame of {text + behind:,} bytes is more than the {limits.nbytes:,} allowed")
    return text, behind


def _require_few_parts(text: bytes, tensors: int, limits: FrameLimits) -> None:
    """Refuse what makes too many objects: each has a comma or a bracket, and texts may have more."""
    most = limits.parts - TENSOR * tensors
    if most < 0 or (len(text) > most and sum(map(text.count, (b",", b"[", b"{"))) > most):
        raise WireError("the value has too many parts")


def _unpacked(body: bytearray, begin: int, limits: FrameLimits) -> tuple[Any, list[Any]]:
    text = bytes(memoryview(body)[:begin])
    _require_few_parts(text, 0, limits)
    try:
        content = _PARSER.decode(text.decode("ascii"))
    except RecursionError:
        raise WireError("the value is nested too deeply") from None
    except ValueError as error:
        raise WireError(f"what arrived is not a message: {error}") from None
    match content:
        case [message, list(forms)]:
            _require_few_parts(b"", len(forms), limits)
            return message, _buffers(memoryview(body)[begin:], forms)
    raise WireError("what arrived is not a message")


def _buffers(behind: memoryview, forms: list[Any]) -> list[Any]:
    """Return what lies behind the text; each byte belongs to one buffer."""
    buffers = []
    for form in forms:
        dtype, shape, nbytes = _checked(form)
        if nbytes > len(behind):
            raise WireError(f"{nbytes:,} bytes announced, {len(behind):,} there")
        buffers.append(behind[:nbytes] if dtype is None else _tensor(behind[:nbytes], dtype, shape))
        behind = behind[nbytes + -nbytes % _ALIGNED :]
    if behind:
        raise WireError(f"{len(behind):,} bytes follow the last buffer")
    return buffers


def _checked(form: Any) -> tuple[torch.dtype | None, list[int], int]:
    """Return dtype, shape and bytes of a buffer; Python's integers do not overflow."""
    name, *shape = form if type(form) is list and form else (None, form)
    if len(shape) > _MOST_DIMS or not all(type(size) is int and size >= 0 for size in shape):
        raise WireError("a buffer of no size that there can be")
    dtype = None if name is None else dtype_of(name)
    return dtype, shape, math.prod(shape) * (dtype.itemsize if dtype else 1)


def _tensor(content: memoryview, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    try:
        if not content:
            return torch.empty(shape, dtype=dtype)
        raw = torch.frombuffer(content, dtype=torch.uint8)
        if dtype is torch.bool and bool((raw > 1).any()):
            raise WireError("a bool tensor with a value that is neither 0 nor 1")
        return raw.view(dtype).reshape(shape)
    except (RuntimeError, OverflowError, TypeError):  # no elements, but dims beyond what torch can count
        raise WireError("a tensor of a shape that no tensor can have") from None
