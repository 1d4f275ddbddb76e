"""What `wire` carries comes out as it went in; everything else is refused, on both sides."""

import contextlib
import http
import math
import socket
import struct
import threading
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from autograder.inside import wire
from autograder.inside.wire import Limits, WireError

PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    255,
    -(2**63),
    2**200,
    1.5,
    math.inf,
    "",
    "Grüße \N{SNOWMAN}",
    b"",
    b"\x00\xff",
    [],
    [1, [2, [3]]],
    (),
    (1, "a", None),
    {},
    {"a": [1], 2: None, None: (True,)},
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_comes_out_as_it_went_in(value):
    result = wire.decode(wire.encode(value))
    assert result == value
    assert type(result) is type(value)


def test_types_inside_containers_are_kept():
    first, second, third = wire.decode(wire.encode([1, True, (1.0,)]))
    assert (type(first), type(second), type(third)) == (int, bool, tuple)


def test_a_view_of_bytes_comes_out_as_bytes():
    result = wire.decode(wire.encode([memoryview(b"abcd")[1:3], memoryview(bytearray(2))]))
    assert result == [b"bc", bytes(2)]
    assert [type(each) for each in result] == [bytes, bytes]


def test_minus_zero_and_nan_are_kept():
    minus_zero, nan = wire.decode(wire.encode([-0.0, math.nan]))
    assert math.copysign(1, minus_zero) == -1
    assert math.isnan(nan)


@pytest.mark.parametrize("dtype", wire._DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 0, 3), (3, 5)], ids=str)
def test_tensors_come_out_as_they_went_in(dtype, shape):
    tensor = torch.randint(0, 2, shape).to(dtype)
    result = wire.decode(wire.encode(tensor))
    assert result.dtype == dtype and result.shape == tensor.shape
    assert torch.equal(result, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12)[::5],
        torch.ones(1).expand(4),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1.0, math.nan]),
    ],
    ids=["transposed", "strided", "expanded", "conjugated", "nan"],
)
def test_views_are_written_out_densely(tensor):
    result = wire.decode(wire.encode(tensor))
    assert result.is_contiguous()
    torch.testing.assert_close(result, tensor, rtol=0, atol=0, equal_nan=True)


def test_a_tensor_that_arrives_shares_no_memory_with_the_frame():
    data = wire.encode(torch.zeros(3))
    wire.decode(data).fill_(1)
    assert torch.equal(wire.decode(data), torch.zeros(3))


def test_gradients_do_not_travel():
    tensor = torch.ones(2, requires_grad=True)
    assert not wire.decode(wire.encode(tensor * 2)).requires_grad


def test_a_tensor_from_numpy_without_elements_travels():
    empty = torch.from_numpy(np.array([])).to(torch.bfloat16)
    assert wire.decode(wire.encode(empty)).shape == (0,)
    assert wire.decode(wire.encode(torch.empty(0).as_strided((0,), (0,)))).shape == (0,)


class _Fit(NamedTuple):
    alpha: float
    beta: float


class _Tensor(torch.Tensor):
    """Answers every function of torch as it likes."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (_Fit(1.0, 2.0), (1.0, 2.0)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (http.HTTPStatus.OK, 200),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_numpy_and_data_of_a_subclass_arrive_as_plain_data(value, plain):
    (arrived,) = wire.decode(wire.encode([value]))
    assert arrived == plain and type(arrived) is type(plain)


@pytest.mark.parametrize(
    "value",
    [nn.Parameter(torch.ones(2)), nn.Buffer(torch.ones(2)), torch.ones(2).as_subclass(_Tensor)],
    ids=lambda value: type(value).__name__,
)
def test_a_tensor_of_a_subclass_arrives_as_a_tensor(value):
    arrived = wire.decode(wire.encode([value]))[0]
    assert type(arrived) is torch.Tensor
    assert torch.equal(arrived, torch.ones(2))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        1j,
        np.complex64(1),
        np.array([1.0]),
        TwoTensor(torch.ones(2), torch.ones(2)),
        FakeTensorMode().from_tensor(torch.ones(2)),
        torch.ones(2, device="meta"),
        nn.Parameter(torch.ones(2, device="meta")),
        torch.eye(2).to_sparse(),
        {(1,): 2},
        {b"a": 2},
        "\ud800",
        len,
        memoryview(b"abcd").cast("I"),
        memoryview(b"abcd").cast("B", (2, 2)),
        memoryview(b"abcd")[::2],
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_is_refused_when_it_is_sent(value):
    with pytest.raises(WireError):
        wire.encode([value])


def test_a_list_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(WireError, match="nested too deeply"):
        wire.encode(loop)


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (b"x" * 100, Limits(nbytes=100)),
        (torch.ones(100), Limits(nbytes=400)),
        ([[[1]]], Limits(depth=2)),
        ([None] * 10, Limits(values=10)),
        ([torch.zeros(())] * 10, Limits(values=900)),
        (2**9000, Limits()),
    ],
    ids=["bytes", "tensor", "depth", "values", "tensors", "int"],
)
def test_limits_hold_for_the_sender_and_for_the_receiver(value, limits):
    with pytest.raises(WireError):
        wire.encode(value, limits)
    if not isinstance(value, int):
        with pytest.raises(WireError):
            wire.decode(wire.encode(value), limits)


def _count(number: int) -> bytes:
    return struct.pack("!Q", number)


def _tensor_bytes(dtype: bytes, shape: list[int], content: bytes) -> bytes:
    dims = b"".join(map(_count, shape))
    return b"X" + _count(len(dtype)) + dtype + _count(len(shape)) + dims + content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"N" + b"N",
        b"i" + _count(2**40),
        b"i" + _count(2000) + b"\x01" * 2000,
        b"f" + b"\x00" * 7,
        b"s" + _count(1) + b"\xff",
        b"l" + _count(2**60),
        b"d" + _count(1) + b"l" + _count(0) + b"N",
        b"d" + _count(2) + b"TNTN",
        b"l" + _count(1) + b"X",
        _tensor_bytes(b"float32", [3], b"\x00" * 11),
        _tensor_bytes(b"float32", [3], b"\x00" * 13),
        _tensor_bytes(b"float32", [2**62, 2**62], b""),
        _tensor_bytes(b"float32", [0, 2**63], b""),
        _tensor_bytes(b"float32", [0, 2**40, 2**40], b""),
        _tensor_bytes(b"float32", [1] * 65, b"\x00" * 4),
        _tensor_bytes(b"object", [1], b"\x00" * 8),
        _tensor_bytes(b"bool", [2], b"\x00\x02"),
        b"\x80\x04N.",
    ],
    ids=[
        "nothing",
        "unknown tag",
        "two values",
        "int too long",
        "int too large",
        "half a float",
        "not UTF-8",
        "endless list",
        "list as key",
        "key twice",
        "half a tensor",
        "tensor too short",
        "tensor too long",
        "shape that overflows",
        "dim beyond int64",
        "empty with huge dims",
        "too many dims",
        "unknown dtype",
        "bool of 2",
        "pickle",
    ],
)
def test_lying_bytes_are_refused_when_they_arrive(data):
    with pytest.raises(WireError):
        wire.decode(data)


COLLIDING = 2**61 - 1  # all multiples of which have the hash 0


@pytest.mark.parametrize(
    "keys",
    [
        [number * COLLIDING for number in range(1, 1002)],
        [float(number) for number in range(1, 1002)],
    ],
    ids=["colliding ints", "floats"],
)
@pytest.mark.parametrize("a_dict", [1001, 7], ids=["one dict", "many dicts"])
def test_of_keys_that_can_be_made_to_collide_there_are_few_in_a_frame(keys, a_dict):
    entries = [wire.encode(key) + b"N" for key in keys]
    dicts = [entries[start : start + a_dict] for start in range(0, len(entries), a_dict)]
    data = b"".join(b"d" + _count(len(some)) + b"".join(some) for some in dicts)
    with pytest.raises(WireError, match="more than 1,000 keys of dicts are numbers"):
        wire.decode(b"l" + _count(len(dicts)) + data)
    with pytest.raises(WireError, match="more than 1,000 keys of dicts are numbers"):
        wire.encode(dict.fromkeys(keys))


def test_texts_are_keys_of_any_number():
    value = {str(number): number for number in range(10_000)}
    assert wire.decode(wire.encode(value)) == value


def test_no_prefix_and_no_single_changed_byte_gets_past_as_anything_but_a_value_or_a_wire_error():
    data = wire.encode({"a": [1, 2.0, "b"], "t": torch.arange(3)})
    for end in range(len(data)):
        with pytest.raises(WireError):
            wire.decode(data[:end])
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        with contextlib.suppress(WireError):
            wire.decode(changed)


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


def test_a_frame_larger_than_the_socket_buffer_arrives_whole(pair):
    left, right = pair
    tensor = torch.arange(1_000_000)
    sender = threading.Thread(target=wire.send, args=(left, tensor))
    sender.start()
    result = wire.receive(right, timeout=30)
    sender.join()
    assert torch.equal(result, tensor)


def test_large_parts_among_small_ones_arrive_in_their_places(pair):
    left, right = pair
    value = ["before", bytes(range(256)) * 4096, [1, None], b"y" * 2**20, {"after": b""}]
    sender = threading.Thread(target=wire.send, args=(left, value))
    sender.start()
    result = wire.receive(right, timeout=30)
    sender.join()
    assert result == value


def test_frames_arrive_in_order(pair):
    left, right = pair
    wire.send(left, 1)
    wire.send(left, [2])
    assert [wire.receive(right), wire.receive(right)] == [1, [2]]


def test_a_peer_that_is_gone_is_an_EOFError(pair):
    left, right = pair
    left.sendall(b"4RW1")
    left.close()
    with pytest.raises(EOFError):
        wire.receive(right, timeout=30)


def test_a_peer_that_says_nothing_is_a_TimeoutError(pair):
    with pytest.raises(TimeoutError):
        wire.receive(pair[1], timeout=0.05)


def test_a_frame_that_trickles_in_is_a_TimeoutError(pair):
    left, right = pair
    left.sendall(b"4RW1" + _count(100) + b"s")
    with pytest.raises(TimeoutError):
        wire.receive(right, timeout=0.05)


@pytest.mark.parametrize(
    "header", [b"HTTP" + _count(1), b"4RW1" + _count(2**62)], ids=["no frame", "too large"]
)
def test_a_header_that_is_not_ours_is_refused_before_anything_is_read(pair, header):
    left, right = pair
    left.sendall(header)
    with pytest.raises(WireError):
        wire.receive(right, timeout=30)
