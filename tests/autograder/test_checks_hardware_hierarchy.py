"""The checks of exercise 01: solutions pass, a wrong one fails for its own reason; clocks are real again."""

import threading
import time
import timeit

import pytest
import torch

from autograder import check, student
from autograder.drivers import hardware_hierarchy as drivers
from autograder.remote import StudentProcess
from fourranks import published
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "01_hardware_hierarchy"
CHECKS = shelf.operations(TOPIC)
MISTAKES = shelf.mistakes(TOPIC)
MORE = {  # as hidden tests ask
    "matmul_intensity": {"cases": 30},
    "attainable_flops": {"cases": 30},
    "transfer_seconds": {"cases": 30},
    "parse_topology": {"names": ("8_v100", "5_pcie")},
    "measure_copy_bandwidth": {"num_bytes": (1, 4099, 30_000_001)},
}
FEW = {"measure_copy_bandwidth": {"num_bytes": (1003, 30_000)}}  # enough to tell every mistake on the shelf


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


@pytest.mark.parametrize("name", CHECKS)
def test_the_solution_passes_the_visible_check(name, solutions, capfd):
    getattr(check, name)(solutions[name])
    shown = capfd.readouterr()
    assert f"{name}: passed" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("name", CHECKS)
def test_the_solution_passes_with_more_cases_and_another_seed(name, solutions):
    getattr(check, name)(solutions[name], **MORE[name], seed=7)


@pytest.mark.parametrize(("name", "mistake"), MISTAKES, ids=map(".".join, MISTAKES))
def test_a_wrong_solution_fails_for_its_own_reason_and_gets_the_hint_meant_for_it(name, mistake):
    names = shelf.wrong_solutions(TOPIC, name)
    kinds, phrase = names["FAILS_AS"][mistake]
    function = student.NotebookFunction(names[mistake])
    function.timeout = 10.0
    verdict = failure_of(name, function, **FEW.get(name, {})).verdict
    assert verdict.kind in kinds.split(" or "), verdict
    assert phrase in verdict.hint, verdict


@pytest.mark.parametrize("name", CHECKS)
def test_an_untouched_stub_fails_as_not_implemented(name):
    def stub(*arguments):
        raise NotImplementedError

    assert failure_of(name, stub).verdict.kind == "not implemented"


WAYS_TO_READ_A_CLOCK = {
    "module": "import time\nclock = lambda: time.perf_counter()",
    "name": "from time import perf_counter as clock",
    "nanoseconds": "from time import perf_counter_ns\ndef clock():\n    return perf_counter_ns() / 1e9",
    "monotonic": "import time as t\nclock = lambda: t.monotonic()",
    "wall": "from time import *\nclock = lambda: time()",
    "processor": "import time\nclock = time.process_time",
    "inside": "def clock():\n    from time import perf_counter\n    return perf_counter()",
    "timeit": "from timeit import default_timer as clock",
}
MEASURE = """
import statistics, torch
def measure(num_bytes):
    source = torch.ones(num_bytes, dtype=torch.uint8)
    destination = torch.zeros_like(source)
    destination[:] = source
    times = []
    for _ in range(7):
        start = clock()
        destination[:] = source
        times.append(clock() - start)
    return 2 * num_bytes / statistics.median(times)
"""


@pytest.mark.parametrize("way", WAYS_TO_READ_A_CLOCK)
def test_every_way_to_read_a_clock_shows_the_fake_time(way):
    measure = shelf.names(WAYS_TO_READ_A_CLOCK[way] + MEASURE, "cell")["measure"]
    seen = drivers.measure_with_fake_clock(measure, 1003, 0.002)
    assert seen["answer"] == pytest.approx(2 * 1003 / 0.002, rel=0.001)
    assert seen["copies"] == [1003] * 8


def test_timeit_and_its_like_show_the_fake_time():
    def measure(num_bytes):
        source = torch.ones(num_bytes, dtype=torch.uint8)
        destination = torch.zeros_like(source)
        times = timeit.repeat(lambda: destination.copy_(source), number=1, repeat=7)
        return 2 * num_bytes / sorted(times)[3]

    assert drivers.measure_with_fake_clock(measure, 1003, 0.002)["answer"] == pytest.approx(
        1.003e6, rel=0.001
    )


def test_clocks_are_real_again_afterwards_even_after_an_error():
    before = {name: getattr(time, name) for name in dir(time)}, timeit.Timer.__init__.__defaults__

    def measure(num_bytes):
        assert time.perf_counter() == pytest.approx(1000.0, abs=0.001)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drivers.measure_with_fake_clock(measure, 10, 0.001)
    assert before == ({name: getattr(time, name) for name in dir(time)}, timeit.Timer.__init__.__defaults__)


def test_other_threads_see_the_real_time_meanwhile():
    """Helper threads of a rank watch the time while the student's function runs."""
    seen = []

    def measure(num_bytes):
        thread = threading.Thread(target=lambda: seen.append(time.perf_counter()))
        thread.start()
        thread.join()
        return 0.0

    before = time.perf_counter()
    drivers.measure_with_fake_clock(measure, 10, 0.001)
    assert before <= seen[0] <= time.perf_counter()


def test_a_made_up_machine_differs_from_seed_to_seed(solutions):
    """So no table of known listings gets through."""
    known = {
        text: solutions["parse_topology"](text) for text in map(published.topology, published.TOPOLOGIES)
    }

    def memorized(text):
        if text not in known:
            raise ValueError("unknown")
        return known[text]

    verdict = failure_of("parse_topology", memorized, seed=3).verdict
    assert "a machine that is made up" in [str(result.case) for result in verdict.failed]


class TestBehindWire:
    """The same checks, with the student's code in another process."""

    @pytest.fixture(scope="class")
    @staticmethod
    def notebook():
        with StudentProcess(shelf.cells(TOPIC, lambda cell: not cell.get("grade"))) as process:
            yield process

    @pytest.mark.parametrize("name", CHECKS)
    def test_every_check_passes(self, name, notebook):
        getattr(check, name)(notebook.function(name))

    MISTAKES = {
        "transfer_seconds": "fails_without_hops",
        "parse_topology": "believes_every_entry",
        "measure_copy_bandwidth": "takes_the_mean",
    }

    @pytest.fixture(scope="class")
    @staticmethod
    def wrong_notebook():
        modules = ["common", *TestBehindWire.MISTAKES]
        with StudentProcess([(shelf.SHELF / TOPIC / f"{m}.py").read_text() for m in modules]) as process:
            yield process

    @pytest.mark.parametrize(("name", "mistake"), MISTAKES.items())
    def test_a_wrong_solution_fails_for_the_same_reason(self, name, mistake, wrong_notebook):
        kinds, phrase = shelf.wrong_solutions(TOPIC, name)["FAILS_AS"][mistake]
        verdict = failure_of(name, wrong_notebook.function(mistake), **FEW.get(name, {})).verdict
        assert verdict.kind in kinds
        assert phrase in verdict.hint
