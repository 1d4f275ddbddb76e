"""Beyond what `test_checks` asks of communicating less: extreme ratios, and what is told of mistakes."""

import os

import pytest

from autograder import check
from autograder.kit import student
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "04_data_parallelism"
OPERATIONS = ("local_sgd_round", "top_k_compressor")
FEW = {"world_sizes": (1, 2, 3)}  # enough to tell every mistake on the shelf


def test_a_compressor_of_one_element_and_one_of_all_pass():
    limits = {"world_sizes": (3,), "ratios": (0.001, 1.0), "shapes": ((1,), (0,), (5, 7))}
    check.top_k_compressor(shelf.solutions(TOPIC)["TopKCompressor"], **limits)


def test_a_broadcast_counts_only_for_the_rank_that_sends():
    check.top_k_compressor(shelf.wrong_solutions(TOPIC, "top_k_compressor")["Broadcasts"], world_sizes=(3,))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_code_that_never_ends_or_dies_fails_its_check(operation):
    def never_end(*arguments, group=None):
        while True:
            pass

    def die(*arguments, group=None):
        os._exit(3)

    for function, kind in ((never_end, "TIMED_OUT"), (die, "DIED")):
        function.__module__ = "__main__"  # reaches the ranks by value, as a notebook's functions do
        handle = student.NotebookFunction(function)
        handle.timeout = 2.0 if function is never_end else 20.0
        assert shelf.name_of(failure_of(operation, handle, **FEW).verdict.mistake) == kind


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
