"""Errors of NCCL and CUDA as they were reported in public, and what a reader is told about each."""

from pathlib import Path

import pytest

from fourranks.cuda_errors import explain
from fourranks.errors import Aftermath, RankError
from fourranks.protocol.remote_error import RemoteError

TEXT = (Path(__file__).parent / "data" / "cuda_errors.txt").read_text()
KNOWN = [entry.split("\n", 1) for entry in TEXT.split("=> ")[1:]]


@pytest.mark.parametrize("advice, message", KNOWN)
def test_a_known_error_is_explained(advice, message):
    assert advice in explain(message)


@pytest.mark.parametrize(
    "message",
    [
        "division by zero",
        "shape '[2, 3]' is invalid for input of size 5",
        "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:37229",
        "Ranks 1 failed to pass monitoredBarrier in 3000 ms",
    ],
)
def test_other_errors_speak_for_themselves(message):
    assert explain(message) is None


def test_an_explanation_stands_below_the_traceback_once_for_all_ranks():
    error = RemoteError("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB.", "the traceback")
    text = str(RankError({0: error, 1: error}, Aftermath.DEAD))
    lines = text.splitlines()
    assert text.count("The GPU's memory is full") == 1
    assert lines[:2] == ["Ranks 0-1 raised OutOfMemoryError", "the traceback"]
    assert lines[2].startswith("The GPU's memory is full") and lines[-1] == Aftermath.DEAD.value
