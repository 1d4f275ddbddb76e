"""The checks of exercise 04's local SGD and compressed gradients, on real ranks."""

import os

import pytest

from autograder import check, student
from autograder.remote import StudentProcess
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "04_data_parallelism"
SOLUTIONS = {"local_sgd_round": "local_sgd_round", "top_k_compressor": "TopKCompressor"}
MISTAKES = [(op, mistake) for op, mistake in shelf.mistakes(TOPIC) if op in SOLUTIONS]
FEW = {"world_sizes": (1, 2, 3)}  # enough to tell every mistake on the shelf


@pytest.fixture(scope="module")
def solutions() -> dict:
    names = shelf.solutions(TOPIC)
    return {operation: names[name] for operation, name in SOLUTIONS.items()}


@pytest.mark.parametrize("operation", SOLUTIONS)
def test_the_solution_passes_the_visible_check(operation, solutions, capfd):
    getattr(check, operation)(solutions[operation])
    shown = capfd.readouterr()
    assert f"{SOLUTIONS[operation]}: passed" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("operation", SOLUTIONS)
def test_the_solution_passes_with_8_ranks(operation, solutions):
    getattr(check, operation)(solutions[operation], world_sizes=(8,), seed=7)


def test_a_compressor_of_one_element_and_one_of_all_pass(solutions):
    limits = {"world_sizes": (3,), "ratios": (0.001, 1.0), "shapes": ((1,), (0,), (5, 7))}
    check.top_k_compressor(solutions["top_k_compressor"], **limits)


@pytest.mark.parametrize(("operation", "mistake"), MISTAKES, ids=map(".".join, MISTAKES))
def test_a_wrong_solution_fails_for_its_own_reason_and_gets_the_hint_meant_for_it(operation, mistake):
    names = shelf.wrong_solutions(TOPIC, operation)
    kinds, phrase = names["FAILS_AS"][mistake]
    function = student.NotebookFunction(names[mistake])
    function.timeout = 4.0
    verdict = failure_of(operation, function, **FEW).verdict
    assert verdict.kind in kinds.split(" or "), verdict
    assert phrase in verdict.hint, verdict


@pytest.mark.parametrize("operation", SOLUTIONS)
def test_an_untouched_stub_fails_as_not_implemented(operation):
    def stub(*arguments, group=None):
        raise NotImplementedError

    assert failure_of(operation, stub, **FEW).verdict.kind == "not implemented"


@pytest.mark.parametrize("operation", SOLUTIONS)
def test_code_that_never_ends_or_dies_fails_its_check(operation):
    def never_end(*arguments, group=None):
        while True:
            pass

    def die(*arguments, group=None):
        os._exit(3)

    for function, kind in ((never_end, "timed out"), (die, "died")):
        function.__module__ = "__main__"  # reaches the ranks by value, as a notebook's functions do
        handle = student.NotebookFunction(function)
        handle.timeout = 2.0
        assert failure_of(operation, handle, **FEW).verdict.kind == kind


def test_an_all_reduce_of_zeros_is_told_how_many_bytes_it_moved_and_how_many_there_had_to_be():
    mistake = shelf.wrong_solutions(TOPIC, "top_k_compressor")["SendsZerosToo"]
    limits = {"world_sizes": (2,), "ratios": (0.1,), "shapes": ((100,),)}
    text = str(failure_of("top_k_compressor", mistake, **limits))
    assert "at most 720 bytes" in text  # 3 steps of 2 compressors, each 10 values and 10 places
    assert "2,400 bytes on rank 0" in text


def test_communication_in_the_midst_of_a_round_is_named_with_its_line():
    mistake = shelf.wrong_solutions(TOPIC, "local_sgd_round")["averages_every_gradient"]
    text = str(failure_of("local_sgd_round", mistake, world_sizes=(2,)))
    assert "rank 0 calls all_reduce in line" in text
    assert "round 1: local steps only" in text


class TestBehindWire:
    """The same checks, with the student's code in another process."""

    @pytest.fixture(scope="class")
    @staticmethod
    def notebook():
        with StudentProcess(shelf.cells(TOPIC, lambda cell: not cell.get("grade"))) as process:
            yield process

    @pytest.mark.parametrize("operation", SOLUTIONS)
    def test_every_check_passes(self, operation, notebook):
        getattr(check, operation)(notebook.function(SOLUTIONS[operation]), **FEW)

    MISTAKES = {"local_sgd_round": "clears_after_the_step", "top_k_compressor": "KeepsWhatItSends"}

    @pytest.fixture(scope="class")
    @staticmethod
    def wrong_notebook():
        with StudentProcess([(shelf.SHELF / TOPIC / f"{op}.py").read_text() for op in SOLUTIONS]) as process:
            yield process

    @pytest.mark.parametrize(("operation", "mistake"), MISTAKES.items())
    def test_a_wrong_solution_fails_for_the_same_reason(self, operation, mistake, wrong_notebook):
        kinds, phrase = shelf.wrong_solutions(TOPIC, operation)["FAILS_AS"][mistake]
        verdict = failure_of(operation, wrong_notebook.function(mistake), **FEW).verdict
        assert verdict.kind in kinds
        assert phrase in verdict.hint
