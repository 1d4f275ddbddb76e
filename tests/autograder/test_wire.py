"""Values that `wire` carries come out as they went in; everything else is refused, on both sides."""

import contextlib
import enum
import http
import math
import socket
import threading
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from autograder.inside import frames, wire
from autograder.inside.wire import FrameLimits, WireError

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
    "\N{SNOWMAN}" * 1000,
    '"[{,]}\\u0041\x00',
    {"x" * 1000: "y" * 1000},
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


@pytest.mark.parametrize("dtype", wire.DTYPES, ids=str)
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
        torch.arange(2.0)[::2].as_strided((1,), (2,)),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1.0, math.nan]),
    ],
    ids=["transposed", "strided", "expanded", "one element", "conjugated", "nan"],
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


class _Step(str, enum.Enum):
    FORWARD = "F"


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
        (np.array(1.5), 1.5),
        (Fraction(3, 2), 1.5),
        (_Fit(1.0, 2.0), (1.0, 2.0)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (http.HTTPStatus.OK, 200),
        (_Step.FORWARD, "F"),
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
        np.longdouble(1),
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


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_by_its_name():
    with pytest.raises(WireError, match="nested tensors cannot be sent"):
        wire.encode(torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]))


def test_a_list_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(WireError, match="nested too deeply"):
        wire.encode(loop)


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (b"x" * 100, FrameLimits(nbytes=100)),
        (torch.ones(100), FrameLimits(nbytes=400)),
        ([[[1]]], FrameLimits(depth=2)),
        ([None] * 10, FrameLimits(parts=10)),
        ([torch.zeros(())] * 10, FrameLimits(parts=900)),
        (2**9000, FrameLimits()),
    ],
    ids=["bytes", "tensor", "depth", "values", "tensors", "int"],
)
def test_limits_hold_for_the_sender_and_for_the_receiver(value, limits):
    with pytest.raises(WireError):
        wire.encode(value, limits)
    if not isinstance(value, int):
        with pytest.raises(WireError):
            wire.decode(wire.encode(value), limits)


def _frame(message: object, *buffers: torch.Tensor | bytes) -> bytes:
    return b"".join(frames.pack(message, buffers))


DEEP: list = []
for _ in range(40):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("message", "buffers"),
    [
        ({}, ()),
        ({"set": [1]}, ()),
        ({"tuple": 1}, ()),
        ({"tuple": {"keys": [], "values": []}}, ()),
        ({"keys": [1], "values": []}, ()),
        ({"keys": ["a"], "values": "b"}, ()),
        ({"keys": [[]], "values": [1]}, ()),
        ({"keys": [{"tuple": []}], "values": [1]}, ()),
        ({"keys": [{"behind": "tensor"}], "values": [1]}, (torch.ones(1),)),
        ({"keys": [True, True], "values": [None, None]}, ()),
        ({"keys": ["a", {"behind": "text"}], "values": [1, 2]}, (b"a",)),
        ({"keys": [1, 1.0], "values": [None, None]}, ()),
        ("\ud800", ()),
        (["a\udfff"], ()),
        ({"behind": "text"}, (b"\xff",)),
        ({"behind": "text"}, (b"\xed\xa0\x80",)),
        ({"behind": "text"}, (torch.ones(1),)),
        ({"behind": "bytes"}, (torch.ones(1),)),
        ({"behind": "bytes"}, ()),
        ({"behind": "tensor"}, (b"1234",)),
        ({"behind": "tensor"}, (torch.ones(1, dtype=torch.uint16),)),
        ([{"behind": "tensor"}] * 2, (torch.ones(1),)),
        ([{"behind": "bytes"}] * 1000, (bytes(1 << 20),)),
        ({"behind": "code"}, (b"1",)),
        (None, (b"",)),
        (None, (torch.ones(1),)),
        (DEEP, ()),
    ],
    ids=[
        "empty object",
        "unknown name",
        "tuple of a number",
        "tuple of a dict",
        "keys without values",
        "values that are a text",
        "list as key",
        "tuple as key",
        "tensor as key",
        "key twice",
        "key twice, once behind",
        "equal keys",
        "half of a surrogate pair",
        "half of a pair in a list",
        "text not UTF-8",
        "half of a pair behind",
        "text that is a tensor",
        "bytes that are a tensor",
        "bytes that are missing",
        "tensor that is bytes",
        "another dtype",
        "tensor named twice",
        "bytes named a thousand times",
        "unknown kind",
        "bytes that nothing names",
        "tensor that nothing names",
        "nested deeply",
    ],
)
def test_frames_that_are_no_value_are_refused(message, buffers):
    with pytest.raises(WireError):
        wire.decode(_frame(message, *buffers))


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
    some = [keys[start : start + a_dict] for start in range(0, len(keys), a_dict)]
    dicts = [{"keys": own, "values": [None] * len(own)} for own in some]
    with pytest.raises(WireError, match="more than 1,000 keys of dicts are numbers"):
        wire.decode(_frame(dicts))
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


def test_a_value_from_a_socket_that_is_beyond_the_limits_is_refused(pair):
    left, right = pair
    wire.send(left, [1, 2, 3])
    with pytest.raises(WireError, match="too many parts"):
        wire.receive(right, limits=FrameLimits(parts=3))
