"""Messages between a rank and its witness: a line of JSON, followed by the bytes of tensors.

Nothing of what arrives is evaluated, and its size is bounded. `wire` could send the same, ten times slower:
there are a few messages for every call that a rank makes.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Sequence
from io import BufferedReader
from typing import Any

import torch

MOST_TEXT, MOST_BYTES = 1 << 24, 1 << 30  # of one message; of one tensor
_LENGTH = struct.Struct("!Q")
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_SMALL = 1 << 16  # bytes that are rather copied than sent apart


class FrameError(ValueError):
    """What arrived is no message."""


def dtype_of(name: object) -> torch.dtype:
    """The dtype with this name.

    Raises:
        FrameError: there is none.
    """
    if name not in _DTYPES:
        raise FrameError("no dtype")
    return _DTYPES[name]


def send(connection: socket.socket, message: dict[str, Any], tensors: Sequence[torch.Tensor] = ()) -> None:
    """Send a message of plain data, and contiguous tensors of the CPU."""
    forms = [[str(tensor.dtype), *tensor.shape] for tensor in tensors]
    text = json.dumps([message, forms]).encode()
    parts = [_LENGTH.pack(len(text)), text, *map(_memory, tensors)]
    if sum(map(len, parts)) < _SMALL:
        connection.sendall(b"".join(parts))
    else:
        for part in parts:
            connection.sendall(part)


def reader(connection: socket.socket) -> BufferedReader:
    """What `receive` reads from: most messages come in one piece."""
    return connection.makefile("rb", _SMALL)


def receive(connection: BufferedReader) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The next message and its tensors.

    Raises:
        EOFError: the other side is gone.
        FrameError: what arrives is no message.
    """
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    if length > MOST_TEXT:
        raise FrameError("a message that is too long")
    match json.loads(_receive(connection, length)):
        case [dict(message), list(forms)]:
            return message, [_tensor(connection, form) for form in forms]
    raise FrameError("no message")


def _memory(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


def _tensor(connection: BufferedReader, form: Any) -> torch.Tensor:
    match form:
        case [str(name), *shape] if all(type(size) is int and size >= 0 for size in shape):
            dtype = dtype_of(name)
        case _:
            raise FrameError("no tensor")
    if (nbytes := math.prod(shape) * dtype.itemsize) > MOST_BYTES:
        raise FrameError("a tensor that is too large")
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(_receive(connection, nbytes), dtype=torch.uint8)
    if dtype is torch.bool and bool((raw > 1).any()):
        raise FrameError("a bool that is neither true nor false")
    return raw.view(dtype).reshape(shape)


def _receive(connection: BufferedReader, length: int) -> bytearray:
    received = bytearray(length)
    if connection.readinto(received) < length:
        raise EOFError("the other side closed the connection")
    return received
