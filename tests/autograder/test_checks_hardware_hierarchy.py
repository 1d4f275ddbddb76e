"""Beyond what `test_checks` asks of exercise 01: every clock is faked, and is real again afterwards."""

import threading
import time
import timeit
from collections import OrderedDict, defaultdict
from functools import partial

import pytest
import torch

from autograder.inside.drivers import hardware_hierarchy as drivers
from autograder.kit.student import Outcome
from autograder.topics.hardware_hierarchy.checks import _near_our_own
from fourranks.figures import published
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "01_hardware_hierarchy"


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


WAYS_TO_READ_A_CLOCK = {
    "module": "import time\nclock = lambda: time.perf_counter()",
    "name": "from time import perf_counter as clock",
    "nanoseconds": "from time import perf_counter_ns\ndef clock():\n    return perf_counter_ns() / 1e9",
    "monotonic": "import time as t\nclock = lambda: t.monotonic()",
    "wall": "from time import *\nclock = lambda: time()",
    "processor": "import time\nclock = time.process_time",
    "inside": "def clock():\n    from time import perf_counter\n    return perf_counter()",
    "timeit": "from timeit import default_timer as clock",
    "system": "import time\nclock = lambda: time.clock_gettime(time.CLOCK_MONOTONIC)",
    "default": "import time\ndef clock(read=time.perf_counter):\n    return read()",
    "class": "import time\nclass Watch:\n    read = staticmethod(time.time)\nclock = lambda: Watch.read()",
    "table": "import time\nclocks = {'wall': time.monotonic}\nclock = lambda: clocks['wall']()",
    "partial": "import functools, time\nclock = functools.partial(time.perf_counter)",
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
    assert seen.answer == pytest.approx(2 * 1003 / 0.002, rel=0.001)
    assert seen.copies == [1003] * 8


def test_timeit_and_its_like_show_the_fake_time():
    def measure(num_bytes):
        source = torch.ones(num_bytes, dtype=torch.uint8)
        destination = torch.zeros_like(source)
        times = timeit.repeat(lambda: destination.copy_(source), number=1, repeat=7)
        return 2 * num_bytes / sorted(times)[3]

    assert drivers.measure_with_fake_clock(measure, 1003, 0.002).answer == pytest.approx(1.003e6, rel=0.001)


def test_a_copy_within_one_allocation_is_seen_and_one_onto_itself_is_not():
    def measure(num_bytes):
        source, destination = torch.ones(2, num_bytes, dtype=torch.uint8)
        times = []
        for onto in (source, *[destination] * 8):
            start = time.perf_counter()
            onto.copy_(source)
            times.append(time.perf_counter() - start)
        return 2 * num_bytes / sorted(times[2:])[3]

    seen = drivers.measure_with_fake_clock(measure, 1003, 0.002)
    assert seen.answer == pytest.approx(1.003e6, rel=0.001)
    assert seen.copies == [1003] * 8


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

    def measure(num_bytes):
        seen = []
        thread = threading.Thread(target=lambda: seen.append(time.perf_counter()))
        thread.start()
        thread.join()
        return seen[0]

    before = time.perf_counter()
    seen = drivers.measure_with_fake_clock(measure, 10, 0.001).answer
    assert before <= seen <= time.perf_counter()


def test_the_real_machine_is_measured_by_one_thread_whatever_the_code_sets():
    seen = []

    def measure(num_bytes):
        seen.append(torch.get_num_threads())
        torch.set_num_threads(3)
        return 1.0

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        drivers.measure_for_real(measure, 10)
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


class Links(dict):
    pass


@pytest.mark.parametrize("kind", [OrderedDict, partial(defaultdict, str), Links])
def test_any_kind_of_dict_may_hold_the_topology(solutions, kind):
    parse = solutions["parse_topology"]
    assert drivers.read_listing(lambda text: kind(parse(text)), published.topology("8_a100")).type == "dict"


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


@pytest.mark.parametrize(
    ("answers", "reference", "passes"),
    [
        ([5e9] * 6, [5e9] * 7, True),
        ([5e9] + [1e7] * 5, [5e9] * 7, True),  # other programs disturbed all turns but one
        ([5e7] * 6, [5e9, 5e9, 5e7, 5e9, 5e9, 5e9, 5e9], True),  # the machine was as slow in two of them
        ([1e7] * 6, [5e9] * 7, False),
        ([5e7, 5e7, 5e7, 5e7, 1e7, 1e7], [5e9, 5e9, 5e9, 5e9, 5e9, 5e7, 5e9], False),  # but not then
    ],
)
def test_an_answer_of_this_machine_is_held_against_copies_just_before_and_after_it(
    answers, reference, passes
):
    seen = drivers.RealMeasurements(answers, reference)
    assert (_near_our_own(Outcome(seen, [], [])) is None) is passes
