"""The checks of exercise 03, on real ranks: solutions pass, a wrong one fails for its own reason."""

import pytest

from autograder import check, student
from autograder.remote import StudentProcess
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "03_benchmarking"
OPERATIONS = shelf.operations(TOPIC)
MISTAKES = shelf.mistakes(TOPIC)
FEW = {"benchmark": {"world_sizes": (1, 3)}}  # enough to tell every mistake on the shelf
MORE = {
    "benchmark": {"world_sizes": (2, 8)},
    "busbw": {"world_sizes": (1, 7, 1000)},
    "corrected_reduce_scatter_busbw": {"world_sizes": (3, 1000)},
    "crossover_bytes": {"world_sizes": (2, 3, 6, 1000)},
}


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_solution_passes_the_visible_check(operation, solutions, capfd):
    getattr(check, operation)(solutions[operation])
    shown = capfd.readouterr()
    assert f"{operation}: passed" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_solution_passes_with_other_seeds_and_world_sizes(operation, solutions):
    for seed in (7, 8):
        getattr(check, operation)(solutions[operation], seed=seed, **MORE.get(operation, {}))


@pytest.mark.parametrize(("operation", "mistake"), MISTAKES, ids=map(".".join, MISTAKES))
def test_a_wrong_solution_fails_for_its_own_reason_and_gets_the_hint_meant_for_it(operation, mistake):
    names = shelf.wrong_solutions(TOPIC, operation)
    kinds, phrase = names["FAILS_AS"][mistake]
    function = student.NotebookFunction(names[mistake])
    function.timeout = 4.0
    verdict = failure_of(operation, function, **FEW.get(operation, {})).verdict
    assert verdict.kind in kinds.split(" or "), verdict
    assert phrase in verdict.hint, verdict


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_untouched_stub_fails_as_not_implemented(operation):
    def stub(*arguments, **keywords):
        raise NotImplementedError

    failure = failure_of(operation, stub, **FEW.get(operation, {}))
    assert failure.verdict.kind == "not implemented"


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


def test_what_the_lecture_printed_is_told_that_a_time_shorter_than_the_work_was_measured():
    names = shelf.wrong_solutions(TOPIC, "benchmark")
    text = str(failure_of("benchmark", names["never_synchronizes"], world_sizes=(2,)))
    assert "the time to launch, not the time to run" in text
    assert "0.01 ms (not synchronized)" in text


def test_a_mean_is_shown_beside_the_median_that_was_expected():
    names = shelf.wrong_solutions(TOPIC, "benchmark")
    text = str(failure_of("benchmark", names["mean_instead_of_median"], world_sizes=(2,)))
    assert "the mean over iterations, not the median" in text
    assert "2 ranks, warmup=2, iterations=7" in text


def test_nothing_is_left_of_the_pretended_clock():
    from autograder.drivers import benchmarking as drivers

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
    "dies": (_die, "died"),
    "never ends": (_never_end, "timed out"),
    "raises": (_raise, "raised"),
    "returns a handle": (lambda *arguments, **keywords: _raise, "wrong type"),
    "returns nan": (lambda *arguments, **keywords: float("nan"), "calls of run"),
    "takes no arguments": (lambda: None, "raised"),
}


@pytest.mark.parametrize(("function", "kind"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR)
def test_a_benchmark_that_misbehaves_fails_its_check(function, kind):
    function.__module__ = "__main__"  # by value, as a notebook's
    handle = student.NotebookFunction(function)
    handle.timeout = 4.0
    assert failure_of("benchmark", handle, world_sizes=(2,)).verdict.kind == kind


class TestBehindWire:
    """The same checks, with the student's code in another process."""

    @pytest.fixture(scope="class")
    @staticmethod
    def notebook():
        with StudentProcess(shelf.cells(TOPIC, lambda cell: bool(cell) and not cell["grade"])) as process:
            yield process

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_every_check_passes(self, operation, notebook):
        getattr(check, operation)(notebook.function(operation), **FEW.get(operation, {}))

    MISTAKES = {
        "benchmark": "never_synchronizes",
        "busbw": "counts_the_output_of_reduce_scatter",
        "fit_alpha_beta": "absolute_errors",
    }

    @pytest.fixture(scope="class")
    @staticmethod
    def wrong_notebook():
        modules = ["common", *TestBehindWire.MISTAKES]
        with StudentProcess([(shelf.SHELF / TOPIC / f"{m}.py").read_text() for m in modules]) as process:
            yield process

    @pytest.mark.parametrize(("operation", "mistake"), MISTAKES.items())
    def test_a_wrong_solution_fails_for_the_same_reason(self, operation, mistake, wrong_notebook):
        kinds, phrase = shelf.wrong_solutions(TOPIC, operation)["FAILS_AS"][mistake]
        verdict = failure_of(operation, wrong_notebook.function(mistake), **FEW.get(operation, {})).verdict
        assert verdict.kind in kinds
        assert phrase in verdict.hint
