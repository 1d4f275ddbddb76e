"""Beyond what `test_checks` asks of exercise 02: what a check shows, and code that misbehaves."""

import os
import threading
from collections.abc import Callable

import psutil
import pytest
import torch

from autograder import check, student
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "02_collectives"
FEW = {"world_sizes": (1, 2, 3, 4), "numels": (0, 1, 7, 40)}  # enough to tell every mistake on the shelf


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


def test_a_naive_all_reduce_is_told_how_many_bytes_it_moved_and_how_many_a_ring_moves():
    naive = shelf.wrong_solutions(TOPIC, "ring_all_reduce")["gathers_everything_and_adds"]
    limits = {"world_sizes": (4,), "numels": (1000,), "dtypes": (torch.float32,)}
    text = str(failure_of("ring_all_reduce", naive, **limits))
    assert "ring_all_reduce: right, but too many bytes" in text
    assert "12,000 bytes from ranks 0-3 (48,000 in all)" in text  # 3 X a rank
    assert "a ring: at most 6,000 bytes from ranks 0-3 (24,000 in all)" in text  # 2 · 3/4 X a rank


def test_a_forbidden_collective_is_named_with_its_line():
    source = "import torch.distributed as dist\ndef cheat(tensor, group=None):\n    dist.all_reduce(tensor)\n"
    cheat = shelf.names(source, "cell")["cheat"]
    assert "dist.all_reduce in line 3" in str(failure_of("ring_all_reduce", cheat))


def _raise(*arguments, group=None):
    raise ValueError("<b>no</b>")


def _die(*arguments, group=None):
    os._exit(3)


def _never_end(*arguments, group=None):
    while True:
        pass


def _return_a_handle(*arguments, group=None):
    return _never_end


def _call_itself(*arguments, group=None):
    return _call_itself(*arguments, group=group)


_LOCK = threading.Lock()


def _needs_a_lock(*arguments, group=None):
    _LOCK.acquire()


MISBEHAVIOUR = {
    "raises": (_raise, "raised"),
    "dies": (_die, "died"),
    "never ends": (_never_end, "timed out"),
    "returns a handle": (_return_a_handle, "wrong type"),
    "recurses": (_call_itself, "raised"),
    "cannot be sent": (_needs_a_lock, "raised"),
    "takes no arguments": (lambda: None, "raised"),
    "resizes": (lambda tensor, group=None: (tensor.resize_(3), None)[1], "wrong type"),
    "returns 42": (lambda tensor, group=None: 42, "wrong type"),
}


@pytest.mark.parametrize(("function", "kind"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR)
def test_a_function_that_misbehaves_fails_its_check_and_leaves_the_next_one_working(
    function, kind, solutions
):
    # The functions of this file reach the ranks by value, as a notebook's do.
    handle = student.NotebookFunction(_by_value(function))
    handle.timeout = 5.0
    assert failure_of("ring_all_reduce", handle, world_sizes=(3,), numels=(5,)).verdict.kind == kind
    check.ring_all_reduce(solutions["ring_all_reduce"], world_sizes=(3,), numels=(5,))


def _by_value(function: Callable) -> Callable:
    function.__module__ = "__main__"
    return function


def test_no_process_is_left_behind_by_a_check(solutions):
    check.broadcast(solutions["broadcast"], world_sizes=(2,), numels=(1,))  # the zygote stays
    before = set(psutil.Process().children(recursive=True))
    check.broadcast(solutions["broadcast"], **FEW)
    failure_of(
        "broadcast",
        shelf.wrong_solutions(TOPIC, "broadcast")["receives_at_the_source_too"],
        world_sizes=(3,),
        numels=(1,),
    )
    assert set(psutil.Process().children(recursive=True)) <= before


def test_the_same_seed_draws_the_same_inputs_and_another_seed_others():
    def texts(seed):
        function = shelf.wrong_solutions(TOPIC, "ring_all_reduce")["averages"]
        return str(failure_of("ring_all_reduce", function, world_sizes=(2,), numels=(3,), seed=seed))

    assert texts(5) == texts(5)
    assert "seed=5" in texts(5)
    assert texts(5) != texts(6).replace("seed=6", "seed=5")


def test_a_check_may_stop_at_the_first_case_that_fails():
    function = student.NotebookFunction(shelf.wrong_solutions(TOPIC, "ring_all_reduce")["averages"])
    assert len(failure_of("ring_all_reduce", function, world_sizes=(2,), numels=(3, 5)).verdict.failed) > 1
    function.until_failure = True
    assert len(failure_of("ring_all_reduce", function, world_sizes=(2,), numels=(3, 5)).verdict.failed) == 1


def test_a_failed_check_shows_a_table_whose_entries_are_escaped():
    verdict = failure_of("ring_all_reduce", _by_value(_raise), world_sizes=(2,), numels=(1,)).verdict
    html = verdict._repr_html_()
    assert "&lt;b&gt;no&lt;/b&gt;" in html and "<b>no" not in html
    assert "<b>no</b>" in str(verdict)


def test_something_that_is_no_function_is_refused_with_what_to_pass():
    with pytest.raises(TypeError, match="takes your function itself"):
        check.broadcast(None)
