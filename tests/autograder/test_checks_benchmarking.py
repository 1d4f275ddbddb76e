"""Beyond what `test_checks` asks of exercise 03: other right ways, and what is told of wrong ones."""

import pytest

from autograder import check
from autograder.kit import student
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "03_benchmarking"


def other_ways(source):
    """A right benchmark that someone wrote in another way."""
    code = (
        "import statistics, time, torch, torch.distributed as dist\nfrom time import perf_counter_ns\n"
        + source
    )
    return shelf.names(code, "cell")["benchmark"]


HEAD = "def benchmark(run, *, warmup, iterations, device, group=None):\n"
OTHER_WAYS = {
    "an all-reduce in each iteration, which is a barrier too, and a clock in ns": """
    for _ in range(warmup): run()
    torch.cuda.is_available() and torch.cuda.synchronize()
    slowest = []
    for _ in range(iterations):
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        begin = perf_counter_ns()
        run()
        torch.cuda.is_available() and torch.cuda.synchronize()
        seconds = torch.tensor((perf_counter_ns() - begin) / 1e9, device=device)
        dist.all_reduce(seconds, dist.ReduceOp.MAX, group)
        slowest.append(seconds.item())
    return statistics.median(slowest)
""",
    "CUDA's events on a GPU": """
    def mark():
        if device.type == "cpu":
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
    for _ in range(warmup): run()
    marks = []
    for _ in range(iterations):
        dist.barrier(group)
        start = mark()
        run()
        marks.append((start, mark()))
    if device.type == "cuda":
        torch.cuda.synchronize()
        own = [start.elapsed_time(end) / 1000 for start, end in marks]
    else:
        own = [end - start for start, end in marks]
    slowest = torch.tensor(own).to(device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    return slowest.median().item()
""",
    "timeit": """
    import timeit
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    own = []
    for i in range(warmup + iterations):
        wait()
        dist.barrier(group=group)
        own += [timeit.timeit(lambda: (run(), wait()), number=1)] * (i >= warmup)
    slowest = torch.tensor(own, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return statistics.median(slowest.tolist())
""",
    "objects gathered on every rank": """
    wait = torch.get_device_module(device).synchronize if device.type == "cuda" else lambda: None
    own = []
    for i in range(warmup + iterations):
        wait()
        dist.barrier(group=group)
        start = time.time()
        run()
        wait()
        own += [time.time() - start] * (i >= warmup)
    everybody = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybody, own, group=group)
    return sorted(map(max, *everybody) if len(everybody) > 1 else own)[iterations // 2]
""",
}


@pytest.mark.parametrize("body", OTHER_WAYS.values(), ids=OTHER_WAYS)
def test_a_benchmark_may_be_written_in_other_ways(body):
    check.benchmark(other_ways(HEAD + body), world_sizes=(1, 2, 3))


CLOCK_ELSEWHERE = """
import functools

class Benchmark:
    def __init__(self, clock=perf_counter_ns):
        self.clock = clock

    def measure(self, label, run, *, warmup, iterations, device, group=None):
        own = []
        for i in range(warmup + iterations):
            device.type == "cuda" and torch.cuda.synchronize()
            dist.barrier(group=group)
            start = self.clock()
            run()
            device.type == "cuda" and torch.cuda.synchronize()
            own += [(self.clock() - start) / 1e9] * (i >= warmup)
        slowest = torch.tensor(own, dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
        return statistics.median(slowest.tolist())

benchmark = functools.partial(Benchmark().measure, "a label")
"""


def test_a_benchmark_may_keep_its_clock_in_an_object():
    check.benchmark(other_ways(CLOCK_ELSEWHERE), world_sizes=(1, 3))


def test_what_the_lecture_printed_is_told_that_a_time_shorter_than_the_work_was_measured():
    names = shelf.wrong_solutions(TOPIC, "benchmark")
    text = str(failure_of("benchmark", names["never_synchronizes"], world_sizes=(2,)))
    assert "the time to launch, not the time to run" in text
    assert "0.01 ms (not synchronized)" in text


def test_a_reduce_scatter_may_be_corrected_step_by_step():
    def corrected(reported, world_size):
        output_over_seconds = reported * world_size / (world_size - 1)
        input_over_seconds = world_size * output_over_seconds
        return input_over_seconds * (world_size - 1) / world_size

    check.corrected_reduce_scatter_busbw(corrected)


def test_an_audit_that_allows_for_no_rounding_is_told_so_by_all_its_logs_together():
    exact = shelf.wrong_solutions(TOPIC, "audit")["accuses_what_is_rounded"]
    assert shelf.name_of(failure_of("audit", exact).verdict.mistake) == "RIGHT_ACCUSED"


def test_a_mean_is_shown_beside_the_median_that_was_expected():
    names = shelf.wrong_solutions(TOPIC, "benchmark")
    text = str(failure_of("benchmark", names["mean_instead_of_median"], world_sizes=(2,)))
    assert "the mean over iterations, not the median" in text
    assert "2 ranks, warmup=2, iterations=7" in text


def test_nothing_is_left_of_the_pretended_clock():
    from autograder.inside.drivers import benchmarking as drivers

    def reads_clocks(run, *, warmup, iterations, device):
        return 0.0

    def before_and_after():
        import time

        import torch

        clocks = (
            time.perf_counter,
            time.time,
            time.monotonic_ns,
            torch.cuda.synchronize,
            torch.cuda.is_available,
        )
        drivers.pretended(reads_clocks, [0.1], 0, 1, "cpu")
        drivers.pretended(reads_clocks, [0.1], 0, 1, "cuda")
        return clocks == (
            time.perf_counter,
            time.time,
            time.monotonic_ns,
            torch.cuda.synchronize,
            torch.cuda.is_available,
        )

    assert before_and_after()


def _die(*arguments, **keywords):
    import os

    os._exit(3)


def _never_end(*arguments, **keywords):
    while True:
        pass


def _raise(*arguments, **keywords):
    raise ValueError("no")


MISBEHAVIOUR = {
    "dies": (_die, "DIED"),
    "never ends": (_never_end, "TIMED_OUT"),
    "raises": (_raise, "RAISED"),
    "returns a handle": (lambda *arguments, **keywords: _raise, "WRONG_TYPE"),
    "returns nan": (lambda *arguments, **keywords: float("nan"), "CALLS_OF_RUN"),
    "takes no arguments": (lambda: None, "RAISED"),
}


@pytest.mark.parametrize(("function", "kind"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR)
def test_a_benchmark_that_misbehaves_fails_its_check(function, kind):
    function.__module__ = "__main__"  # by value, as a notebook's
    handle = student.NotebookFunction(function)
    handle.timeout = 4.0 if function is _never_end else 20.0
    assert shelf.name_of(failure_of("benchmark", handle, world_sizes=(2,)).verdict.mistake) == kind
