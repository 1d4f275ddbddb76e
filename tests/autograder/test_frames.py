"""Frames arrive as they were sent, as do the calls of ranks in them; nonsense is refused."""

import contextlib
import json
import socket
import struct
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from autograder.inside import frames
from autograder.inside.arguments import from_plain, to_plain
from autograder.inside.frames import WireError


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.uint16, torch.float8_e5m2],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (50, 1000)])
def test_tensors_arrive(dtype, shape, ends):
    ours, theirs = ends
    sent = torch.ones(shape).to(dtype)
    sender = threading.Thread(target=frames.send, args=[ours, {"id": 1}, [sent, sent]])
    sender.start()
    message, (one, other) = frames.receive(theirs)
    sender.join()
    assert message == {"id": 1}
    assert one.dtype == dtype and torch.equal(one, sent) and torch.equal(other, sent)


def raw(text: bytes, behind: bytes = b"") -> bytes:
    return struct.pack("!4sQQ", b"4RW1", len(text), len(behind)) + text + behind


def lying(message: object, forms: object, behind: bytes = b"") -> bytes:
    """A frame whose text says what it likes of what lies behind it."""
    return raw(json.dumps([message, forms]).encode(), behind)


NONSENSE = {
    "nothing": b"",
    "half a header": raw(b"")[:-1],
    "no frame": b"HTTP" + bytes(16),
    "a pickle": b"\x80\x04N.",
    "no text": raw(b""),
    "no message": raw(b"[]"),
    "no list": raw(b"{}"),
    "three parts": raw(b"[1, [], []]"),
    "two messages": raw(b"[1, []] [1, []]"),
    "not JSON": raw(b"not JSON"),
    "not ASCII": raw(b'["\xff", []]'),
    "UTF-16": raw("[1, []]".encode("utf-16")),
    "a truncated text": raw(b'[["a", "b'),
    "a text with a line break": raw(b'["a\nb", []]'),
    "nested deeply": raw(b"[" * 100_000),
    "nested deeply in objects": raw(b'{"a":' * 100_000),
    "a long int": raw(b"[" + b"9" * 1_000_000 + b", []]"),
    "a long exponent": raw(b"[1e" + b"9" * 1_000_000 + b"x, []]"),
    "a long header": struct.pack("!4sQQ", b"4RW1", 1 << 60, 0),
    "much behind": struct.pack("!4sQQ", b"4RW1", 2, 1 << 60),
    "lengths that overflow": struct.pack("!4sQQ", b"4RW1", 2, (1 << 64) - 1),
    "forms that are an object": lying(None, {}),
    "an empty form": lying(None, [[]]),
    "a form in a form": lying(None, [[["list"], 1]]),
    "a negative size": lying(None, [["torch.float32", -1]]),
    "a negative length": lying(None, [-1]),
    "a size in words": lying(None, [["torch.float32", "1"]]),
    "a size that is true": lying(None, [["torch.uint8", True]], b"1"),
    "a size with a fraction": lying(None, [["torch.uint8", 1.0]], b"1"),
    "a length that is true": lying(None, [True], b"1"),
    "something else than a dtype": lying(None, [["os.system", 1]]),
    "a dtype without its module": lying(None, [["float32", 1]], b"1234"),
    "a text as a form": lying(None, ["torch.float32"]),
    "a shape that overflows": lying(None, [["torch.float32", 1 << 40, 1 << 40]]),
    "a shape that comes to nothing": lying(None, [["torch.float32", 1 << 62, 4]]),
    "a dim beyond int64": lying(None, [["torch.float32", 0, 1 << 63]]),
    "empty with huge dims": lying(None, [["torch.float32", 0, 1 << 40, 1 << 40]]),
    "too many dims": lying(None, [["torch.uint8", *[1] * 65]], b"1"),
    "a bool of 2": lying(None, [["torch.bool", 1]], b"\x02" + bytes(15)),
    "a tensor too short": lying(None, [["torch.float32", 2]], b"1234"),
    "bytes too short": lying(None, [20], bytes(16)),
    "more than is named": lying(None, [["torch.uint8", 1]], bytes(32)),
    "without padding": lying(None, [["torch.uint8", 1]], b"1")[:-1],
    "a quantized tensor": lying(None, [["torch.quint8", 1]], bytes(16)),
}


@pytest.mark.parametrize("sent", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused(sent):
    with pytest.raises(WireError):
        frames.unpack(sent)


@pytest.mark.parametrize(
    "sent",
    [NONSENSE["no frame"], NONSENSE["a long header"], NONSENSE["much behind"]],
    ids=["no frame", "a long header", "much behind"],
)
def test_a_header_that_lies_is_refused_before_anything_is_read(sent, ends):
    ours, theirs = ends
    ours.sendall(sent)
    with pytest.raises(WireError):
        frames.receive(theirs, timeout=30)


def test_a_frame_that_drips_in_is_given_up_when_its_time_is_over(ends):
    ours, theirs = ends
    ours.sendall(struct.pack("!4sQQ", b"4RW1", 2, 1 << 27))
    ours.setblocking(False)
    given_up = threading.Event()

    def drip():
        until = time.monotonic() + 5
        while not given_up.is_set() and time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):  # the other side is behind
                ours.send(b" ")
        ours.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=drip)
    sender.start()
    try:
        with pytest.raises(TimeoutError, match="did not arrive in time"):
            frames.receive(theirs, timeout=0.1)
    finally:
        given_up.set()
        sender.join()


def test_a_message_of_many_small_things_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr(frames, "_PARSER", None)
    for text in (b"[]," * 5_000_000, b"{}," * 5_000_000, b"0," * 5_000_000):
        with pytest.raises(WireError, match="too many parts"):
            frames.unpack(raw(b"[[" + text + b"0], []]"))


def test_many_tensors_are_refused_before_one_is_made(monkeypatch):
    monkeypatch.setattr(frames, "_tensor", None)
    with pytest.raises(WireError, match="too many parts"):
        frames.unpack(lying(None, [["torch.bool", 0]] * 50_000))


def test_no_prefix_and_no_single_changed_byte_gets_past_as_anything_but_a_message_or_a_wire_error():
    data = b"".join(frames.pack({"a": [1, 2.0, "b"]}, [torch.arange(3), b"text"]))
    for end in range(len(data)):
        with pytest.raises(WireError):
            frames.unpack(data[:end])
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            with contextlib.suppress(WireError):
                frames.unpack(changed)


def test_what_is_unpacked_shares_no_memory_with_the_frame():
    frame = bytearray(b"".join(frames.pack(None, [torch.zeros(3)])))
    _, (tensor,) = frames.unpack(frame)
    tensor.fill_(1)
    assert torch.equal(frames.unpack(frame)[1][0], torch.zeros(3))


@pytest.mark.parametrize("sent", [b"", b"123", raw(b"[{}, []]")[:-1]])
def test_who_goes_in_the_middle_is_gone(sent, ends):
    ours, theirs = ends
    ours.sendall(sent)
    ours.close()
    with pytest.raises(EOFError):
        frames.receive(theirs, timeout=30)


@pytest.mark.parametrize("sent", [b"", raw(b"[{}, []]")[:-1]], ids=["nothing", "most of a frame"])
def test_what_does_not_arrive_in_time_is_a_TimeoutError(sent, ends):
    ours, theirs = ends
    ours.sendall(sent)
    with pytest.raises(TimeoutError):
        frames.receive(theirs, timeout=0.05)


def arrived(value):
    sent: list[torch.Tensor] = []
    return from_plain(json.loads(json.dumps(to_plain(value, sent))), sent)


def test_arguments_arrive_with_the_options_of_a_call():
    options = dist.ReduceOptions()
    options.reduceOp, options.rootRank, options.asyncOp = dist.ReduceOp.MAX, 3, False
    options.timeout = timedelta(seconds=7)
    tensors, came, number = arrived(([torch.arange(3)], options, 5))
    assert torch.equal(tensors[0], torch.arange(3)) and number == 5
    assert (came.reduceOp, came.rootRank, came.asyncOp) == (dist.ReduceOp.MAX, 3, False)
    assert came.timeout == timedelta(seconds=7)


def test_a_tensor_with_gaps_arrives_with_them():
    came = arrived(torch.arange(6).reshape(2, 3).t())
    assert came.tolist() == [[0, 3], [1, 4], [2, 5]] and not came.is_contiguous()


def test_of_a_tensor_that_nobody_reads_only_the_form_is_sent():
    sent: list[torch.Tensor] = []
    buffer = torch.empty(2, 3, dtype=torch.int16)
    came = from_plain(to_plain([buffer], sent, frozenset([id(buffer)])), sent)
    assert sent == [] and came[0].shape == (2, 3) and came[0].dtype == torch.int16


@pytest.mark.parametrize(
    "plain",
    [
        {"unknown": 1},
        {"tensor": 7, "stride": None},
        {"options": "Popen", "fields": {}},
        {"reduce": "nothing"},
        {"shape": [1 << 40], "stride": [1], "dtype": "torch.float32"},
        {"shape": [2], "stride": [1 << 60], "dtype": "torch.float32"},
        {"shape": [2], "stride": [-1], "dtype": "torch.float32"},
        {"shape": [2], "stride": [1, 1], "dtype": "torch.float32"},
        {"shape": ["2"], "stride": [1], "dtype": "torch.float32"},
    ],
)
def test_what_is_no_argument_is_refused(plain):
    with pytest.raises((ValueError, TypeError, LookupError, RuntimeError)):
        from_plain([plain], [])
