"""What a rank and its witness say to each other arrives as it was; nonsense is refused."""

import json
import socket
import struct
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from autograder.inside import frames
from autograder.inside.arguments import from_plain, to_plain


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32])
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
    return struct.pack("!QQ", len(text), len(behind)) + text + behind


@pytest.mark.parametrize(
    "sent",
    [
        raw(b"[]"),
        raw(b"{}"),
        raw(b"not JSON"),
        raw(b"\xff\xfe"),
        raw(json.dumps([{}, [["torch.float32", -1]]]).encode()),
        raw(json.dumps([{}, [["torch.float32", "1"]]]).encode()),
        raw(json.dumps([{}, [["os.system", 1]]]).encode()),
        raw(json.dumps([{}, [[["list"], 1]]]).encode()),
        raw(json.dumps([{}, ["torch.float32"]]).encode()),
        raw(json.dumps([{}, [[]]]).encode()),
        raw(json.dumps([{}, [["torch.float32", 1 << 40, 1 << 40]]]).encode()),
        raw(json.dumps([{}, [["torch.bool", 1]]]).encode(), b"\x02"),
        raw(json.dumps([{}, [["torch.float32", 2]]]).encode(), b"1234"),
        struct.pack("!QQ", 1 << 60, 0),
        struct.pack("!QQ", 2, 1 << 60),
    ],
)
def test_nonsense_is_refused(sent, ends):
    ours, theirs = ends
    ours.sendall(sent)
    with pytest.raises(ValueError):  # FrameError, or that of json
        frames.receive(theirs)


@pytest.mark.parametrize("sent", [b"", b"123", raw(b"[{}, []]")[:-1]])
def test_who_goes_in_the_middle_is_gone(sent, ends):
    ours, theirs = ends
    ours.sendall(sent)
    ours.close()
    with pytest.raises(EOFError):
        frames.receive(theirs)


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
