"""Beyond `test_checks`, for exercise 02: the display of a check, and code that misbehaves."""

import os
import re
import threading
from collections.abc import Callable

import psutil
import pytest
import torch

from autograder import check
from autograder.kit import student
from autograder.sandbox.student_process import StudentProcess
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


def test_a_forbidden_collective_is_named_where_other_ranks_never_call_it_too():
    source = "import torch.distributed as dist\ndef cheat(tensor, peer):\n    dist.all_reduce(tensor)\n"
    cheat = shelf.names(source, "cell")["cheat"]
    text = str(failure_of("exchange", cheat, world_sizes=(3,)))
    assert "a call that is not allowed here" in text and "dist.all_reduce in line 3" in text


# Mistakes that end without an answer on three ranks and more, whatever the tensors.
WITHOUT_AN_ANSWER = """
def broadcast(tensor, src, group=None):
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank(group)
    position = (rank - ranks.index(src)) % len(ranks)
    if position > 0:
        dist.recv(tensor, group_src=(rank + 1) % len(ranks), group=group)  # comes from rank - 1
    if position < len(ranks) - 1:
        dist.send(tensor, group_dst=(rank + 1) % len(ranks), group=group)

def gather(tensor, gather_list, dst, group=None):
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank(group)
    if rank != ranks.index(dst):
        return dist.send(tensor, dst, group=group)
    gather_list[rank].copy_(tensor)
    for position in range(len(ranks) - 1):  # one too few
        if position != rank:
            dist.recv(gather_list[position], group_src=position, group=group)

def ring_all_gather(output, input, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    chunks = list(output.tensor_split(size))
    chunks[rank].copy_(input)
    for step in range(size - 1):
        sending = dist.isend(chunks[rank - step], group_dst=(rank + 1) % size, group=group)
        dist.recv(chunks[rank - step - 1], group_src=(rank + 1) % size, group=group)  # from the wrong side
        sending.wait()

def ring_all_reduce(tensor, group=None):
    tensor.tensor_split(dist.get_world_size(group))[dist.get_rank(group) + 1]  # there is none
"""


@pytest.mark.parametrize("operation", ["broadcast", "gather", "ring_all_gather", "ring_all_reduce"])
def test_a_mistake_that_ends_every_case_is_not_blamed_on_empty_tensors(operation):
    mistaken = shelf.names(f"import torch.distributed as dist\n{WITHOUT_AN_ANSWER}", "cell")[operation]
    verdict = failure_of(operation, mistaken).verdict
    assert "Only" not in verdict.hint
    sizes_that_failed = {result.case.world_size for result in verdict.failed}
    assert all(
        any(r.case.world_size == n and r.case.numel for r in verdict.failed) for n in sizes_that_failed
    )
    assert ", 0 × " not in str(verdict).split("expected")[0]  # the case that is shown has data to follow


PRINTS = """
def broadcast(tensor, src, group=None):
    print("holds", tensor.tolist())
"""


@pytest.fixture(scope="module")
def printing() -> Callable:
    return shelf.names(PRINTS, "cell")["broadcast"]


def test_what_ranks_printed_in_the_smallest_failed_case_is_shown_below_the_table(printing):
    verdict = failure_of("broadcast", printing, world_sizes=(2, 3), numels=(0, 1, 7)).verdict
    text = str(verdict)
    assert "Printed by the ranks (2 ranks, src=1, 1 × float64, gloo):\n    [0] holds [" in text
    assert "\n    [1] holds [" in text
    assert text.count("holds") == 2  # one line a rank, of one case
    assert text.index("got ") < text.index("Printed by") < text.index("Hint:")
    assert "<pre" in verdict._repr_html_()


def test_of_what_ranks_printed_a_few_short_lines_are_shown_and_escaped():
    source = """
def broadcast(tensor, src, group=None):
    print("<b>" + "x" * 10_000)
    for step in range(1000):
        print("step", step)
"""
    printing = shelf.names(source, "cell")["broadcast"]
    verdict = failure_of("broadcast", printing, world_sizes=(2,), numels=(1,)).verdict
    printed = verdict._repr_html_().partition("<pre")[2].partition("</pre>")[0]
    assert len(printed.splitlines()) < 30 and len(printed) < 4000
    assert printed.endswith("… more was printed")
    assert "&lt;b&gt;xxx" in printed and "<b>" not in printed


def test_a_line_as_long_as_a_note_on_a_call_is_shown_whole():
    source = "def broadcast(tensor, src, group=None):\n    print('x' * 300)"
    broadcast = shelf.names(source, "cell")["broadcast"]
    assert "x" * 300 in str(failure_of("broadcast", broadcast, world_sizes=(2,), numels=(1,)))


def test_what_was_printed_before_ranks_deadlock_or_raise_is_shown():
    source = """
def broadcast(tensor, src, group=None):
    print("size", dist.get_world_size(group))
    dist.recv(tensor, group_src=0) if dist.get_world_size(group) > 1 else 1 / 0
"""
    broadcast = shelf.names(f"import torch.distributed as dist\n{source}", "cell")["broadcast"]
    assert "    [0-1] size 2" in str(failure_of("broadcast", broadcast, world_sizes=(2,), numels=(1,)))
    assert "    [0] size 1" in str(failure_of("broadcast", broadcast, world_sizes=(1,), numels=(1,)))


def test_in_grading_nothing_that_ranks_print_is_shown():
    """Code could print the inputs of hidden tests, and read them in its feedback."""
    with StudentProcess([PRINTS]) as notebook:
        failure = failure_of("broadcast", notebook.function("broadcast"), world_sizes=(2,), numels=(1,))
    assert "holds" not in str(failure) and "Printed" not in str(failure)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "ring_all_reduce", "all_to_all"])
def test_values_of_small_tensors_can_be_followed_by_hand(operation):
    def leave_as_it_is(*arguments, group=None):
        return None

    failed = failure_of(operation, leave_as_it_is, world_sizes=(5,), numels=(1, 7)).verdict.failed
    values = [re.findall(r"= (-?[\d,]+)", result.problem.expected) for result in failed]
    assert len(values) > 2
    assert all(abs(int(value)) < 250 for found in values for value in found)


def _raise(*arguments, group=None):
    raise ValueError("<b>no</b>")


def _send_to_the_next(tensor, group=None):
    import torch.distributed as dist

    dist.send(tensor, dist.get_rank() + 1)


def _die(*arguments, group=None):
    os._exit(3)


def _never_end(*arguments, group=None):
    while True:
        pass


def _never_end_behind_an_isend(tensor, group=None):
    import torch.distributed as dist

    sending = dist.isend(tensor, (dist.get_rank() + 1) % dist.get_world_size())
    while not sending.is_completed():  # which Gloo says after wait() only
        pass


def _raise_while_others_never_end(*arguments, group=None):
    import torch.distributed as dist

    if dist.get_rank() == 1:
        _raise()
    _never_end()


def _return_a_handle(*arguments, group=None):
    return _never_end


def _call_itself(*arguments, group=None):
    return _call_itself(*arguments, group=group)


_LOCK = threading.Lock()


def _needs_a_lock(*arguments, group=None):
    _LOCK.acquire()


MISBEHAVIOUR = {
    "raises": (_raise, "RAISED"),
    "sends past the last rank": (_send_to_the_next, "NO_SUCH_RANK"),
    "dies": (_die, "DIED"),
    "never ends": (_never_end, "TIMED_OUT"),
    "never ends behind an isend": (_never_end_behind_an_isend, "TIMED_OUT"),
    "raises while others never end": (_raise_while_others_never_end, "RAISED"),
    "returns a handle": (_return_a_handle, "WRONG_TYPE"),
    "recurses": (_call_itself, "RAISED"),
    "cannot be sent": (_needs_a_lock, "RAISED"),
    "takes no arguments": (lambda: None, "RAISED"),
    "resizes": (lambda tensor, group=None: (tensor.resize_(3), None)[1], "UNTOUCHED"),
    "returns 42": (lambda tensor, group=None: 42, "WRONG_TYPE"),
}


@pytest.mark.parametrize(("function", "kind"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR)
def test_a_function_that_misbehaves_fails_its_check_and_leaves_the_next_one_working(
    function, kind, solutions
):
    # The functions of this file reach the ranks by value, as a notebook's do.
    handle = student.NotebookFunction(_by_value(function))
    handle.timeout = 5.0
    assert (
        shelf.name_of(failure_of("ring_all_reduce", handle, world_sizes=(3,), numels=(5,)).verdict.mistake)
        == kind
    )
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


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_sum_that_is_no_number_is_a_wrong_value_as_any_other(number):
    def fill(tensor, dst, group=None):
        tensor.fill_(number)

    failure = failure_of("reduce", fill, world_sizes=(2,), numels=(7,), dtypes=(torch.float32,))
    assert shelf.name_of(failure.verdict.mistake) == "VALUE"


def test_something_that_is_no_function_is_refused_with_what_to_pass():
    with pytest.raises(TypeError, match="takes your function itself"):
        check.broadcast(None)
