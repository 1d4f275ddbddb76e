"""A trace is made of the calls of all ranks: operations, bandwidths, how ranks spent their time."""

import json

import pytest

import fourranks
from fourranks.trace.bandwidth import algbw, busbw, busbw_factor, message_size
from fourranks.trace.operations import MESSAGE, operations, summarize
from fourranks.trace.spans import COMPUTING, IDLE, MOVING, WAITING, bubble
from fourranks.views.drawable_trace import DrawableTrace

from .traces import call, cell, trace


def spans(recorded, rank):
    """A rank's activity, as [(kind, start, end)] in ms."""
    return [
        (span.kind, pytest.approx(1000 * span.start), pytest.approx(1000 * span.end))
        for span in recorded.spans()[rank].spans
    ]


def summary(recorded):
    """The only row of the table."""
    (row,) = summarize(recorded.operations)
    return row


# --- bandwidths as in nccl-tests ----------------------------------------------------------------------------

PART = 1000  # bytes that each of 4 ranks puts in; in the notation of nccl-tests: what S is, and the factor
NCCL_TESTS = {
    "all_reduce": (PART, 6 / 4),
    "reduce_scatter": (PART, 3 / 4),
    "all_gather": (4 * PART, 3 / 4),
    "gather": (4 * PART, 3 / 4),
    "all_to_all": (PART, 3 / 4),
    "broadcast": (PART, 1),
    "reduce": (PART, 1),
    MESSAGE: (PART, 1),
}


@pytest.mark.parametrize("op", NCCL_TESTS)
def test_sizes_and_factors_are_those_of_nccl_tests(op):
    size, factor = NCCL_TESTS[op]
    assert message_size(op, [PART] * 4) == size
    assert busbw_factor(op, 4) == factor
    assert algbw(size, 0.5) == 2 * size
    assert busbw(op, size, 0.5, 4) == 2 * size * factor


def test_a_scatters_size_is_what_its_source_puts_in_and_single_variants_count_alike():
    assert message_size("scatter", [0, 4 * PART, 0, 0]) == 4 * PART
    assert busbw_factor("scatter", 4) == 3 / 4
    for op in ("all_gather", "reduce_scatter", "all_to_all"):
        assert busbw_factor(f"{op}_single", 4) == busbw_factor(op, 4)
        assert message_size(f"{op}_single", [PART] * 4) == message_size(op, [PART] * 4)


def test_nothing_crosses_a_link_in_a_world_of_one():
    assert busbw("all_reduce", PART, 1.0, 1) == 0


# --- calls put together -------------------------------------------------------------------------------------


def test_a_late_rank_costs_the_others_time_but_no_bandwidth():
    early = trace(*([call("all_reduce", 0, 10, nbytes=8000)] for _ in range(2)))
    late = trace([call("all_reduce", 0, 100, nbytes=8000)], [call("all_reduce", 90, 100, nbytes=8000)])
    assert summary(late).algbw == pytest.approx(summary(early).algbw) == pytest.approx(800_000)
    assert summary(early).lost == 0
    assert summary(late).lost == pytest.approx(0.090)


def test_an_async_call_is_over_when_its_data_is_there_not_when_somebody_waits():
    row = {"waited_ms": 0.01, "asynchronous": True, "completed": 0.004, "nbytes": 8000}
    assert summary(trace(*([call("all_reduce", 0, 50, **row)] for _ in range(2)))).seconds == 0.004


def test_on_a_gpu_its_own_clock_counts():
    recorded = trace(
        [call("all_reduce", 0, 1, waited_ms=0, device_seconds=0.030, nbytes=8000)],
        [call("all_reduce", 0, 1, waited_ms=0, device_seconds=0.010, nbytes=8000)],
    )
    assert summary(recorded).seconds == 0.010  # the kernel of the rank that came last
    assert summary(recorded).lost == pytest.approx(0.020)


def test_a_send_and_its_receive_are_one_message():
    row = summary(trace([call("send", 5, 8, peer=1, nbytes=99)], [call("recv", 0, 8, peer=0, nbytes=99)]))
    assert (row.op, row.calls, row.nbytes) == (MESSAGE, 1, 99)
    assert row.seconds == pytest.approx(0.003) and row.lost == pytest.approx(0.005)


def test_a_message_takes_until_its_receiver_has_it_however_late_the_sender_looks():
    sent = call("send", 0, 90, waited_ms=0.1, peer=1, asynchronous=True)
    assert summary(trace([sent], [call("recv", 0, 8, peer=0)])).seconds == pytest.approx(0.008)


def test_a_collective_that_a_rank_never_came_to_is_counted_but_not_timed():
    row = summary(trace([call("all_reduce", 0, 10)], []))
    assert (row.calls, row.untimed, row.nbytes, row.seconds, row.algbw) == (1, 1, 0, None, None)
    assert row.lost == pytest.approx(0.010)


def test_a_receive_from_any_source_hides_the_message_s_end_but_not_its_bytes():
    row = summary(trace([call("send", 0, 8, peer=1, nbytes=99)], [call("recv", 0, 8, peer=None)]))
    assert (row.calls, row.nbytes, row.untimed) == (1, 99, 1)


def test_the_same_count_of_a_group_that_was_formed_anew_is_another_operation():
    calls = [[call("barrier", 0, 5), call("barrier", 20, 21)], [call("barrier", 20, 21)]]
    assert len(operations(calls)) == 1
    first, second = operations(calls, formed=[0.010])
    assert first.arrived is None and second.arrived == 0.020


def test_groups_have_rows_of_their_own():
    pairs = ((0, 1), (2, 3))
    rows = [[call("all_reduce", 0, 4, ranks=pairs[rank // 2])] for rank in range(4)]
    assert [(row.ranks, row.calls) for row in summarize(trace(*rows).operations)] == [(p, 1) for p in pairs]


# --- how ranks spend their time -----------------------------------------------------------------------------


def test_a_rank_computes_waits_for_the_last_one_and_then_moves_data():
    recorded = trace([call("all_reduce", 2, 10)], [call("all_reduce", 6, 10)], start_ms=0, end_ms=12)
    assert spans(recorded, 0) == [(COMPUTING, 0, 2), (WAITING, 2, 6), (MOVING, 6, 10), (COMPUTING, 10, 12)]
    assert spans(recorded, 1) == [(COMPUTING, 0, 6), (MOVING, 6, 10), (COMPUTING, 10, 12)]


def test_a_call_that_another_rank_never_made_is_waiting_to_the_end():
    recorded = trace([call("all_reduce", 0, 10)], [call("broadcast", 4, 10)])
    assert spans(recorded, 0) == [(WAITING, 0, 10)]
    assert spans(recorded, 1) == [(COMPUTING, 0, 4), (WAITING, 4, 10)]


def test_a_receive_from_any_source_is_waiting_to_its_end():
    recorded = trace([call("send", 4, 5, peer=1)], [call("recv", 0, 5, peer=None)])
    assert spans(recorded, 1) == [(WAITING, 0, 5)]


def test_a_call_that_was_never_waited_for_does_not_block():
    calls = [call("all_reduce", 0, None, asynchronous=True), call("barrier", 5, 9, seq=1)]
    recorded = trace(calls, [], end_ms=12)
    assert spans(recorded, 0) == [(COMPUTING, 0, 5), (WAITING, 5, 9), (COMPUTING, 9, 12)]
    (flight,) = recorded.spans()[0].in_flight
    assert (flight.start, flight.end) == (0, 0.012)  # for all we know


def test_a_rank_that_is_through_while_others_work_is_idle():
    recorded = trace([], [])
    recorded.cells[0][0].end = 0.25
    assert spans(recorded, 0) == [(COMPUTING, 0, 250), (IDLE, 250, 1000)]
    assert recorded.spans()[0].bubble == 0.75


def test_ends_that_nobody_could_note_any_more_are_the_end_of_the_cell():
    interrupted = call("recv", 2, None, peer=0)
    just_over, under_way = (call("all_reduce", 1, None, asynchronous=True) for _ in range(2))
    record = cell([interrupted, just_over, under_way], start_ms=0, end_ms=9)[0]
    record.close({under_way})
    assert (interrupted.blocked_from, interrupted.end) == (0.002, 0.009)
    assert (just_over.finished, under_way.finished) == (0.009, None)


def test_time_between_two_cells_is_nobodys():
    recorded = DrawableTrace(1, cells=[cell([], start_ms=0, end_ms=10), cell([], start_ms=500, end_ms=510)])
    assert recorded.spans()[0].seconds() == pytest.approx(0.020)


@pytest.mark.parametrize("stages, microbatches", [(4, 4), (4, 16), (3, 5)])
def test_the_bubble_of_a_pipeline_is_that_of_the_textbook(stages, microbatches):
    """Each stage takes 1 ms a microbatch; messages take no time."""
    rows = []
    for stage in range(stages):
        own = {"ranks": tuple(range(stages))}
        receive = [
            call("recv", stage + m if m else 0, stage + m, peer=stage - 1, seq=m, **own)
            for m in range(microbatches)
        ]
        send = [
            call("send", stage + m + 1, stage + m + 1, peer=stage + 1, seq=m, **own)
            for m in range(microbatches)
        ]
        rows.append((receive if stage else []) + (send if stage < stages - 1 else []))
    recorded = trace(*rows, start_ms=0, end_ms=stages + microbatches - 1)
    for stage in range(stages):
        recorded.cells[0][stage].end = (stage + microbatches) / 1000
    assert bubble(recorded.spans()) == pytest.approx((stages - 1) / (microbatches + stages - 1))


def test_overlap_is_the_computation_while_calls_are_in_flight_counted_once():
    flights = [
        call("all_reduce", 2, 9, waited_ms=2, asynchronous=True),  # in flight until 7
        call("all_reduce", 3, 9, waited_ms=0, seq=1, asynchronous=True, completed=0.005),
    ]
    assert trace(flights, start_ms=0, end_ms=9).spans()[0].overlap == pytest.approx(0.005)


# --- real ranks ---------------------------------------------------------------------------------------------


def traced(group, source):
    with group.trace() as recorded:
        group.execute(source)
    return recorded


SIZES = {  # of 4 ranks that put in, or get, 4 elements of 4 bytes a rank
    "dist.all_reduce(x)": 16,
    "dist.broadcast(x, 1)": 16,
    "dist.reduce(x, 1)": 16,
    "dist.all_gather([torch.empty(4) for _ in range(4)], x)": 64,
    "dist.all_gather_single(torch.empty(16), x)": 64,
    "dist.gather(x, [torch.empty(4) for _ in range(4)] if rank == 1 else None, 1)": 64,
    "dist.scatter(x, [torch.ones(4) for _ in range(4)] if rank == 1 else None, 1)": 64,
    "dist.reduce_scatter(torch.empty(1), list(x.chunk(4)))": 16,
    "dist.reduce_scatter_single(torch.empty(1), x)": 16,
    "dist.all_to_all(list(torch.empty(4).chunk(4)), list(x.chunk(4)))": 16,
    "dist.all_to_all_single(torch.empty(4), x)": 16,
    "dist.barrier()": 0,
    "dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None": 16,
}


@pytest.mark.parametrize("source", SIZES)
def test_the_size_of_each_operation_on_real_ranks_is_that_of_nccl_tests(shared_group, source):
    row = summary(traced(shared_group, f"x = torch.ones(4)\n{source}"))
    assert (row.calls, row.nbytes, row.untimed) == (1, SIZES[source], 0)
    assert row.seconds > 0
    assert (row.algbw is None) == (row.nbytes == 0)


def test_clocks_of_the_ranks_agree_and_a_cell_encloses_its_calls(shared_group):
    recorded = traced(shared_group, "for _ in range(20): dist.barrier()")
    for barrier in recorded.operations:
        assert barrier.arrived <= min(call.end for call in barrier.calls.values())  # nobody leaves too early
    for record in recorded.cells[0].values():
        assert record.start <= record.calls[0].start and record.calls[-1].end <= record.end


def test_every_moment_of_every_rank_is_accounted_for(shared_group):
    source = "x = torch.ones(9)\nwork = dist.all_reduce(x, async_op=True)\ndist.barrier()\nwork.wait()"
    ranks = traced(shared_group, source).spans()
    assert len({round(rank.seconds(), 9) for rank in ranks}) == 1
    for rank in ranks:
        assert all(a.end == b.start for a, b in zip(rank.spans, rank.spans[1:], strict=False))


DDP = """
import time
model = nn.parallel.DistributedDataParallel(nn.Linear(100, 100))
model(torch.ones(1, 100)).sum().backward()  # the first pass makes the buckets, the second moves them
model(torch.ones(1, 100)).sum().backward()
"""
HOOK = """
weight = torch.ones(4, requires_grad=True)
weight.register_post_accumulate_grad_hook(
    lambda weight: futures.append(dist.all_reduce(weight.grad, async_op=True).get_future())
)
"""


def test_a_backward_pass_of_ddp_stands_still_for_the_rank_that_comes_last(shared_group):
    shared_group.execute(f"from torch import nn\n{DDP}")
    late = "if rank == 1: time.sleep(2)\n"
    recorded = traced(shared_group, f"{late}model(torch.ones(1, 100)).sum().backward()")
    ranks = recorded.spans()
    assert [rank.seconds(WAITING) > 1 for rank in ranks] == [True, False, True, True]
    assert ranks[1].seconds(COMPUTING) > 1
    for (bucket,) in recorded.calls:
        assert bucket.end == bucket.completed and bucket.blocked_from >= bucket.start


IN_A_BACKWARD_PASS = {
    "in a hook": "future.wait()",
    "in a hook, by the handle": "work.wait()",
    "in a callback at its end": "torch.autograd.Variable._execution_engine.queue_callback(future.wait)",
}


@pytest.mark.parametrize("wait", IN_A_BACKWARD_PASS.values(), ids=IN_A_BACKWARD_PASS)
def test_a_future_waited_for_within_a_backward_pass_counts_once(shared_group, wait):
    program = f"""
import time
from fourranks.rank.process_group import RecordingProcessGroup
weight = torch.ones(4, requires_grad=True)
def hook(weight):
    if rank == 1: time.sleep(0.5)
    work = dist.all_reduce(weight.grad, async_op=True)
    future = work.get_future()
    {wait}
weight.register_post_accumulate_grad_hook(hook)
before = RecordingProcessGroup.recorder.progress().waited
weight.sum().backward()
waited = RecordingProcessGroup.recorder.progress().waited - before
"""
    recorded = traced(shared_group, program)
    of_calls = {rank: call.waited for rank, call in recorded.operations[0].calls.items()}
    for rank, waited in enumerate(shared_group.pull("waited")):
        assert waited == pytest.approx(of_calls[rank], abs=0.1)
        assert (waited > 0.3) == (rank != 1)


def test_a_future_waited_for_within_a_backward_pass_keeps_no_gradient_alive(shared_group):
    shared_group.execute("""
import weakref
gradients, alive = [], []
def hook(weight):
    gradient, weight.grad = weight.grad, None
    alive.append(sum(each() is not None for each in gradients))
    dist.all_reduce(gradient, async_op=True).get_future().wait()
    gradients.append(weakref.ref(gradient))
weights = [torch.ones(4, requires_grad=True) for _ in range(8)]
for weight in weights: weight.register_post_accumulate_grad_hook(hook)
sum(weights).sum().backward()
""")
    for alive in shared_group.pull("alive"):
        assert max(alive) <= 2  # as Gloo's threads may not have let go of the last ones yet


def test_what_a_hook_starts_is_in_flight_until_somebody_waits_for_it(shared_group, tmp_path):
    shared_group.execute(f"import time\nfrom pathlib import Path\nfutures = []\n{HOOK}")
    about_to_wait = f"Path('{tmp_path}/rank 0 is about to wait')"
    late = f"if rank == 1:\n    while not {about_to_wait}.exists(): time.sleep(0.01)\n    time.sleep(1)\n"
    wait = f"time.sleep(0.1)\nif rank == 0: {about_to_wait}.touch()\nfutures[0].wait()"
    recorded = traced(shared_group, f"{late}weight.sum().backward()\n{wait}")
    ((bucket,), *_) = recorded.calls
    assert bucket.completed is not None and bucket.waited > 0
    assert recorded.spans()[0].seconds(WAITING) > 0 and recorded.spans()[0].overlap >= 0.1


def test_a_trace_goes_on_over_several_cells_and_after_a_deadlock(group):
    with group.trace() as recorded:
        group.execute("dist.barrier()")
        with pytest.raises(fourranks.DeadlockError):
            group.execute("dist.barrier()\nif rank == 0: dist.barrier()")
        group.execute("dist.barrier()")
    assert len(recorded.cells) == 3
    assert summary(recorded).calls == 4
    assert summary(recorded).untimed == 1


def test_a_rank_that_died_leaves_no_record_and_the_others_do(group):
    with group.trace() as recorded, pytest.raises(fourranks.RankDied):
        group.execute("import os\nif rank == 2: os._exit(1)\ndist.barrier()")
    assert sorted(recorded.cells[0]) == [0, 1, 3]
    assert recorded.table().rows[0].untimed == 1


def test_records_are_plain_data_with_the_line_in_words(shared_group):
    recorded = traced(shared_group, "x = 1\ndist.all_reduce(torch.ones(2, 3), op=dist.ReduceOp.MAX)")
    records = recorded.to_records()
    assert [record["rank"] for record in records] == [0, 1, 2, 3]
    first = json.loads(json.dumps(records))[0]
    assert first["where"].endswith("line 2: dist.all_reduce(torch.ones(2, 3), op=dist.ReduceOp.MAX)")
    assert (first["op"], first["nbytes"], first["reduce_op"], first["shape"]) == (
        "all_reduce",
        24,
        "MAX",
        [2, 3],
    )
    assert 0 <= first["start"] < first["end"]


def test_a_trace_says_in_one_line_what_it_holds(shared_group):
    recorded = traced(shared_group, "dist.barrier()")
    assert repr(recorded) == "<Trace: 4 calls on 4 ranks in 1 cell>"
