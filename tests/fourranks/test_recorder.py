"""One rank's notes of its calls, from issuing to the end; the backend is a flag that the test sets."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fourranks.protocol import board
from fourranks.rank.recorder import Recorder
from fourranks.trace import Call


@pytest.fixture(autouse=True)
def _no_threads_of_earlier_tests(monkeypatch):
    """This process stands for a rank, of which threads that other tests have left behind are no part."""
    frames, main = sys._current_frames, threading.main_thread().ident
    earlier = set(frames()) - {main}
    monkeypatch.setattr(
        sys, "_current_frames", lambda: {t: f for t, f in frames().items() if t not in earlier}
    )


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


def test_calls_of_two_threads_are_numbered_as_the_backend_has_taken_them(record):
    recorder = record(launches=False)
    first, second, of_another = (Call("all_reduce", group, (0, 1)) for group in "001")
    for call in (first, second, of_another):
        recorder.issue(call)
    for call in (of_another, second, first):
        recorder.accept(call)
    assert [call.seq for call in (first, second, of_another)] == [1, 0, 0]
    third = Call("all_reduce", "0", (0, 1))
    recorder.issue(third)
    recorder.accept(third)
    assert [call.seq for call in (first, second, third)] == [1, 0, 2]


def test_each_call_of_many_under_way_is_looked_at_few_times(record):
    recorder, looks, calls = record(launches=False), [], 2000
    for number in range(calls):
        call = Call(op="send", group="0", ranks=(0, 1), peer=1, line=number)
        recorder.issue(call)
        recorder.leave_open(call, lambda: bool(looks.append(None)))
    assert len(looks) < 2 * calls
    assert len(recorder.under_way()) == calls


def test_a_launched_call_is_under_way_until_it_is_complete_although_its_wait_returned(record):
    recorder = record(launches=True)
    operation = Operation(recorder)
    recorder.end_wait(operation.call, recorder.begin_wait(operation.call))
    assert recorder.progress().launched is operation.call
    operation.is_over.set()
    assert recorder.progress().launched is None


def test_a_traced_call_is_timed_as_soon_as_it_is_seen_to_be_complete(record):
    recorder = record(launches=True)
    first = Operation(recorder)
    recorder.time(first.call, lambda: 0.5)  # asks the handle, which keeps the call's tensors
    Operation(recorder)
    assert first.call.device_seconds is None
    first.is_over.set()
    Operation(recorder)
    assert first.call.device_seconds == 0.5


def test_a_recorder_that_does_not_time_calls_keeps_no_handle_for_it(record):
    recorder = record(launches=True)
    recorder.times_launched = False
    operation = Operation(recorder)
    recorder.time(operation.call, lambda: 0.5)
    operation.is_over.set()
    recorder.finish()
    assert operation.call.device_seconds is None


def test_a_cell_is_over_when_what_it_launched_is_complete(record):
    recorder = record(launches=True)
    operation = Operation(recorder)
    thread = threading.Thread(target=recorder.finish)
    thread.start()
    while recorder.progress().waits != [operation.call]:
        pass  # meanwhile the thread counts as blocked in the call
    operation.is_over.set()
    thread.join(timeout=10)
    assert not thread.is_alive() and recorder.progress().waits == []


def test_a_rank_that_sleeps_in_native_code_is_blocked_in_its_oldest_call(record, monkeypatch):
    recorder = record(launches=False)
    first, second = Operation(recorder), Operation(recorder)
    monkeypatch.setattr("fourranks.rank.threads.in_native_code", lambda frame: True)
    monkeypatch.setattr("fourranks.rank.threads._any_runs", lambda threads: False)
    assert recorder.progress(asleep=True).blocked is first.call
    first.is_over.set()
    assert recorder.progress(asleep=True).blocked is second.call
    assert recorder.progress().blocked is None


def test_a_rank_stands_still_only_when_none_of_its_threads_goes_on(record):
    recorder = record(launches=False)
    mine, theirs = Operation(recorder), Operation(recorder)
    done = threading.Event()

    def wait_for(operation):
        begun = recorder.begin_wait(operation.call)
        done.wait(60)
        recorder.end_wait(operation.call, begun)

    thread = threading.Thread(target=wait_for, args=[theirs])
    thread.start()
    while recorder.progress().waits != [theirs.call]:
        pass
    assert recorder.progress().blocked is None  # the main thread, which runs this test, goes on
    begun = recorder.begin_wait(mine.call)
    assert recorder.progress().blocked is mine.call and recorder.progress().waits == [mine.call, theirs.call]
    done.set()
    thread.join()
    assert recorder.progress().waits == [mine.call]
    recorder.end_wait(mine.call, begun)
    assert recorder.progress().waits == []


def test_a_wait_with_a_limit_of_the_readers_own_is_not_one_for_ever(record):
    recorder = record(launches=False)
    operation = Operation(recorder)
    begun = recorder.begin_wait(None)
    assert recorder.progress().blocked is None
    recorder.end_wait(operation.call, begun)
    begun = recorder.begin_wait(operation.call)
    assert recorder.progress().blocked is operation.call
    recorder.end_wait(operation.call, begun)


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


def test_a_thread_that_was_left_behind_in_a_group_fails_no_call_of_the_next_one(record):
    recorder = record(launches=False)
    left_behind = Operation(recorder).call
    recorder.reset()
    recorder.fail(left_behind, RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer"))
    assert recorder.broke_groups == recorder.progress().failed == []


def test_a_call_of_a_thread_that_was_left_behind_counts_in_no_group_that_was_formed_since(record):
    recorder = record(launches=False)
    taken, refused = Operation(recorder).call, Operation(recorder).call
    recorder.reset()
    recorder.accept(taken)
    recorder.take_back(refused, RuntimeError("the group was shut down"))
    progress = recorder.progress()
    assert progress.recent == progress.refused == []
    assert not any(progress.collectives.values())


def test_a_thread_that_stands_still_in_a_contradiction_does_not_enter_the_next_group():
    descriptor = board.create(2)
    mine, theirs = (Recorder(rank, board.Board(descriptor, rank), False) for rank in (0, 1))
    call, barrier = (Call(op=op, group="0", ranks=(0, 1), part=(2, "")) for op in ("all_reduce", "barrier"))
    theirs.issue(barrier)
    theirs.stand_still_in_conflict(barrier)
    mine.issue(call)
    with ThreadPoolExecutor() as pool:
        standing = pool.submit(mine.stand_still_in_conflict, call)
        while mine.progress().recent != [call]:
            pass
        mine.reset()
        with pytest.raises(RuntimeError, match="the process group of this all_reduce was formed again"):
            standing.result()
    os.close(descriptor)
    assert mine.progress().recent == []


def test_what_a_backend_said_stands_in_the_report_without_the_place_in_its_source(record):
    recorder = record(launches=False)
    late, wrong = Operation(recorder).call, Operation(recorder).call
    recorder.fail(late, RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer\nsee logs"))
    recorder.take_back(wrong, ValueError("too few outputs"))
    progress = recorder.progress()
    assert [(call.error, call.broke_group) for call in progress.failed] == [
        ("Connection closed by peer", True)
    ]
    assert [call.error for call in progress.refused] == ["too few outputs"]


def test_making_a_group_counts_but_is_not_traced(record):
    recorder = record(launches=False)
    recorder.begin_cell(trace=True)
    Operation(recorder, "new_group"), Operation(recorder)
    assert [call.op for call in recorder.calls] == ["all_reduce"]
    assert recorder.progress().collectives == {("0", (0, 1)): 2}


def test_a_call_that_stood_still_in_front_of_its_backend_is_reported_once():
    descriptor = board.create(2)
    mine, theirs = (Recorder(rank, board.Board(descriptor, rank), False) for rank in (0, 1))
    call, barrier = (Call(op=op, group="0", ranks=(0, 1), part=(2, "")) for op in ("all_reduce", "barrier"))
    theirs.issue(barrier)
    theirs.stand_still_in_conflict(barrier)
    mine.issue(call)
    thread = threading.Thread(target=mine.stand_still_in_conflict, args=[call])
    thread.start()
    while mine.progress().recent != [call]:
        pass
    theirs.take_back(barrier, RuntimeError("refused"))
    thread.join()
    mine.accept(call)
    os.close(descriptor)
    assert mine.progress().recent == [call]
