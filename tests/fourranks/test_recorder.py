"""What one rank notes of its calls, from issuing to the end; the backend is a flag that the test sets."""

from __future__ import annotations

import os
import threading

import pytest

from fourranks.rank import board
from fourranks.rank.recorder import Recorder
from fourranks.trace import Call


@pytest.fixture
def record():
    """Makes the recorder of rank 0 of 2 ranks."""
    descriptors = []

    def make(launches: bool) -> Recorder:
        descriptors.append(board.create(2))
        return Recorder(0, board.Board(descriptors[-1], 0), launches)

    yield make
    for descriptor in descriptors:
        os.close(descriptor)


class Operation:
    """A call of a backend, and whether it is over."""

    def __init__(self, recorder: Recorder, op: str = "all_reduce") -> None:
        self.is_over = threading.Event()
        self.call = Call(op=op, group="0", ranks=(0, 1), part=(2, "float32"), line=3)
        recorder.issue(self.call)
        recorder.leave_open(self.call, self.is_over.is_set)


def test_a_call_that_was_waited_for_is_no_longer_under_way(record):
    recorder = record(launches=False)
    operation = Operation(recorder)
    assert recorder.under_way() == [operation.call]
    recorder.end_wait(operation.call, recorder.begin_wait(operation.call))
    assert recorder.under_way() == [] and operation.call.end is not None


def test_a_launched_call_is_under_way_until_it_is_complete_although_its_wait_returned(record):
    recorder = record(launches=True)
    operation = Operation(recorder)
    recorder.end_wait(operation.call, recorder.begin_wait(operation.call))
    assert recorder.progress().launched is operation.call
    operation.is_over.set()
    assert recorder.progress().launched is None


def test_a_cell_is_over_when_what_it_launched_is_complete(record):
    recorder = record(launches=True)
    operation = Operation(recorder)
    thread = threading.Thread(target=recorder.finish)
    thread.start()
    while recorder.progress().blocked is not operation.call:
        pass  # meanwhile the rank counts as blocked in the call
    operation.is_over.set()
    thread.join(timeout=10)
    assert not thread.is_alive() and recorder.progress().blocked is None


def test_a_rank_that_sleeps_in_native_code_is_blocked_in_its_oldest_call(record):
    recorder = record(launches=False)
    first, second = Operation(recorder), Operation(recorder)
    assert recorder.progress(in_native_code=True).blocked is first.call
    first.is_over.set()
    assert recorder.progress(in_native_code=True).blocked is second.call
    assert recorder.progress().blocked is None


def test_only_a_handle_that_is_thrown_away_too_early_is_told(record):
    recorder = record(launches=False)
    early, complete = Operation(recorder), Operation(recorder)
    recorder.drop(early.call, is_completed=False)
    recorder.drop(complete.call, is_completed=True)
    assert recorder.dropped == [early.call]
    recorder.begin_cell(trace=False)
    assert recorder.dropped == []


def test_calls_of_a_line_are_counted_for_each_cell(record):
    recorder = record(launches=False)
    Operation(recorder), Operation(recorder)
    assert recorder.progress().passes == {("", 3): 2}
    recorder.begin_cell(trace=False)
    assert recorder.progress().passes == {}


def test_making_a_group_counts_but_is_not_traced(record):
    recorder = record(launches=False)
    recorder.begin_cell(trace=True)
    Operation(recorder, "new_group"), Operation(recorder)
    assert [call.op for call in recorder.calls] == ["all_reduce"]
    assert recorder.progress().collectives == {("0", (0, 1)): 2}
