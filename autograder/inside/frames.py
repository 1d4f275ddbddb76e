"""Messages between a rank and its witness: two lengths, JSON, and the bytes of tensors.

Nothing of what arrives is evaluated, and its size is bounded. `wire` could send the same, more slowly: there
are a few messages for every call that a rank makes.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Sequence
from typing import Any

import torch

from autograder.inside.wire import memory_of, receive_exactly, send_parts

MOST_TEXT, MOST_BYTES = 1 << 24, 1 << 30  # of one message; of all its tensors
_LENGTHS = struct.Struct("!QQ")
_ALIGNED = 16  # bytes at a multiple of which each tensor begins
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


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
    text = json.dumps([message, [[str(tensor.dtype), *tensor.shape] for tensor in tensors]]).encode()
    text += b" " * (-len(text) % _ALIGNED)
    parts = [part for tensor in tensors for part in _aligned(tensor)]
    length = sum(map(len, parts))
    send_parts(connection, [_LENGTHS.pack(len(text), length), text, *parts])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The next message and its tensors.

    Raises:
        EOFError: the other side is gone.
        ValueError: what arrives is no message.
    """
    text_length, length = _LENGTHS.unpack(receive_exactly(connection, _LENGTHS.size))
    if text_length > MOST_TEXT or length > MOST_BYTES:
        raise FrameError("a message that is too long")
    body = receive_exactly(connection, text_length + length)
    match json.loads(body[:text_length].decode()):
        case [dict(message), list(forms)]:
            return message, _tensors(body, text_length, forms)
    raise FrameError("no message")


def _aligned(tensor: torch.Tensor) -> tuple[memoryview, bytes]:
    memory = memory_of(tensor)
    return memory, bytes(-len(memory) % _ALIGNED)


def _tensors(memory: bytearray, begin: int, forms: list[Any]) -> list[torch.Tensor]:
    tensors = []
    for form in forms:
        dtype, shape, nbytes = _checked(form)
        if begin + nbytes > len(memory):
            raise FrameError("a tensor without all its bytes")
        tensors.append(_tensor(memory, begin, dtype, shape, nbytes))
        begin += nbytes + -nbytes % _ALIGNED
    return tensors


def _checked(form: Any) -> tuple[torch.dtype, list[int], int]:
    """Dtype, shape and bytes of a tensor; Python's integers do not overflow."""
    match form:
        case [str(name), *shape] if all(type(size) is int and size >= 0 for size in shape):
            dtype = dtype_of(name)
            return dtype, shape, math.prod(shape) * dtype.itemsize
    raise FrameError("no tensor")


def _tensor(memory: bytearray, begin: int, dtype: torch.dtype, shape: list[int], nbytes: int) -> torch.Tensor:
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(memory, dtype=torch.uint8, count=nbytes, offset=begin)
    if begin % _ALIGNED:
        raise FrameError("a tensor that is not aligned")
    if dtype is torch.bool and bool((raw > 1).any()):
        raise FrameError("a bool that is neither true nor false")
    return raw.view(dtype).reshape(shape)
