"""`bench` takes times on real ranks; where times matter, each rank has a clock that `run` puts forward."""

import statistics

import pytest
import torch
import torch.distributed as dist

from fourranks import bench
from fourranks.bench import COLLECTIVES, Measurement, benchmark, measure, sweep

WARMUP, ITERATIONS = 2, 5
# Seconds of each call by rank: the slowest one changes, and the calls of the warm-up are slower than all.
SECONDS = [
    [90.0, 80.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    [70.0, 60.0, 6.0, 1.0, 1.0, 1.0, 1.0],
    [70.0, 60.0, 1.0, 9.0, 1.0, 1.0, 7.0],
    [70.0, 60.0, 2.0, 2.0, 8.0, 2.0, 2.0],
]
SLOWEST = [6.0, 9.0, 8.0, 4.0, 7.0]


def with_a_clock_of_its_own(members=None, calls=1):
    """Runs on each rank: the benchmark's result and the number of calls that it made."""
    from types import SimpleNamespace

    group, rank = dist.new_group(members) if members else None, dist.get_rank()
    if members and rank not in members:
        return None
    now, made = [0.0], []

    def run():
        now[0] += SECONDS[rank][len(made) % len(SECONDS[rank])]
        made.append(None)

    clock, bench.time = bench.time, SimpleNamespace(perf_counter=lambda: now[0])
    try:
        options = {"warmup": WARMUP, "iterations": ITERATIONS, "group": group, "calls": calls}
        return benchmark(run, **options), len(made)
    finally:
        bench.time = clock


def test_a_benchmark_is_the_median_over_iterations_of_the_slowest_rank_on_every_rank(shared_group):
    assert shared_group.run(with_a_clock_of_its_own) == [(statistics.median(SLOWEST), 7)] * 4


def test_of_a_smaller_group_only_the_members_count(shared_group):
    answers = shared_group.run(with_a_clock_of_its_own, [1, 3])
    slowest = [max(pair) for pair in zip(SECONDS[1][WARMUP:], SECONDS[3][WARMUP:], strict=True)]
    assert answers == [None, (statistics.median(slowest), 7), None, (statistics.median(slowest), 7)]


def test_calls_that_share_a_reading_share_its_time(shared_group):
    assert {made for _, made in shared_group.run(with_a_clock_of_its_own, calls=7)} == {WARMUP + 7 * 5}


def test_the_ranks_meet_before_each_reading_and_never_within_one(shared_group):
    with shared_group.trace() as trace:
        shared_group.run(measure, "broadcast", 4096, warmup=1, iterations=3)
    ops = [call.op for call in trace.calls[2]]
    assert ops == ["broadcast"] + ["barrier", "broadcast"] * 3 + ["all_reduce"]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_each_collective_moves_an_array_of_the_size_that_nccl_tests_calls_S(collective, shared_group):
    with shared_group.trace() as trace:
        measured = shared_group.run(measure, collective, 1000, warmup=1, iterations=2)
    sizes = {operation.size for operation in trace.operations[:-1] if operation.op != "barrier"}
    assert measured[0].num_bytes == 992  # 62 elements for each of 4 ranks
    assert sizes == {992}  # but for the samples, at the end
    assert measured == [measured[0]] * 4


def test_collectives_run_on_a_smaller_group_too(shared_group):
    def on_the_last_three():
        group = dist.new_group([1, 2, 3])
        if dist.get_rank() == 0:
            return []
        return [measure(name, 120, warmup=0, iterations=1, group=group).world_size for name in COLLECTIVES]

    assert shared_group.run(on_the_last_three) == [[], *[[3] * len(COLLECTIVES)] * 3]


def test_bandwidths_follow_from_the_median_and_the_definitions():
    measured = Measurement("reduce_scatter", 1000, 4, "gloo", (1.0, 2.0, 90.0))
    assert (measured.seconds, measured.algbw, measured.busbw) == (2.0, 500.0, 375.0)


def test_a_sweep_measures_each_collective_at_each_size(shared_group):
    found = sweep(shared_group, ("all_gather", "reduce"), (64, 256), warmup=0, iterations=2)
    assert [(m.collective, m.num_bytes) for m in found] == [
        ("all_gather", 64),
        ("all_gather", 256),
        ("reduce", 64),
        ("reduce", 256),
    ]
    assert all(len(m.samples) == 2 and m.backend == "gloo" and m.seconds > 0 for m in found)


def test_an_unknown_collective_or_too_few_bytes_are_refused_with_what_to_choose(shared_group):
    def refusals():
        texts = []
        for arguments in (("allreduce", 64), ("all_reduce", 12)):
            try:
                measure(*arguments)
            except ValueError as error:
                texts.append(str(error))
        return texts

    unknown, few = shared_group.run(refusals)[0]
    assert "'allreduce'" in unknown and "all_reduce, reduce_scatter" in unknown
    assert "4 ranks with float32 need 16 or more" in few


@pytest.mark.gpu(1)
def test_on_a_gpu_the_time_until_it_is_done_counts():
    def sleeps():
        cycles = 50_000_000
        torch.cuda._sleep(cycles)
        return benchmark(lambda: torch.cuda._sleep(cycles), warmup=1, iterations=3, device="cuda")

    from fourranks import run

    assert run(sleeps, world_size=1, backend="nccl")[0] > 0.01  # launching it takes microseconds
