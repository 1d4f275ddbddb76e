"""How a check's table calls what a function gave."""

import pytest
import torch

from autograder.kit.values import apart, difference, difference_beyond, has_number, is_number, kind_of, same


@pytest.mark.parametrize(
    ("value", "called"),
    [
        (torch.zeros(2, dtype=torch.int64), "an int64 tensor of shape (2,)"),
        (torch.zeros(2, dtype=torch.uint8), "a uint8 tensor of shape (2,)"),
        (3, "an int"),
        ([1.0, 2.0], "a list of 2"),
        (None, "None"),
    ],
)
def test_a_value_is_called_by_its_kind(value, called):
    assert kind_of(value) == called


def test_numbers_are_shown_in_as_many_digits_as_tell_them_apart():
    assert apart(0.25, 4) == ("0.25", "4")
    assert apart(3.66230012345, 3.66230012) == ("3.66230012345", "3.66230012")


def test_the_element_that_is_shown_differs_by_more_than_the_tolerance():
    want, got = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0001, 2.0, 4.0])
    expected, found = difference_beyond(1e-3, want, got)
    assert expected.startswith("[2] = 3") and found.startswith("[2] = 4") and "1 of 3 wrong" in found


def test_a_tensor_that_holds_nan_is_the_same_as_its_copy_and_as_no_other():
    got = torch.tensor([float("nan"), 1.0])
    assert same(got, got.clone())
    assert not same(got, torch.tensor([0.0, 1.0]))
    assert not same(got, torch.tensor([float("nan"), 2.0]))


def test_tensors_in_lists_and_dicts_are_compared_one_by_one():
    got = [{"x": torch.tensor([1.0, 2.0])}, 3]
    assert same(got, [{"x": torch.tensor([1.0, 2.0])}, 3])
    assert not same(got, [{"x": torch.tensor([1.0, 3.0])}, 3])
    assert not same(got, [{"y": torch.tensor([1.0, 2.0])}, 3])


def test_large_integers_are_shown_in_all_their_digits():
    want, got = torch.tensor([2**62 + 1]), torch.tensor([2**62])
    assert difference(want, got) == ("[0] = 4,611,686,018,427,387,905", "[0] = 4,611,686,018,427,387,904")


@pytest.mark.parametrize(
    ("value", "counts"),
    [(1, True), (1.5, True), (float("nan"), True), (True, False), (10**400, False), ("1", False)],
)
def test_a_number_is_one_that_python_can_compute_with_as_a_float(value, counts):
    assert is_number(value) is counts


@pytest.mark.parametrize(
    ("text", "number", "has"),
    [
        ("10 samples cannot be shared by 3 ranks", 10, True),
        ("10 samples cannot be shared by 3 ranks", 3, True),
        ("10 samples cannot be shared by 3 ranks", 1, False),
        ("meshes of (2,3,1)", 3, True),
        ("rank3", 3, True),
        ("81.2346 GB is the least.", "81.23", False),
        ("81.23 GB is the least.", "81.23", True),
        ("81.2346 GB is the least.", "81", True),
        ("80000000000 bytes", "80", False),
        ("80,000,000,000 bytes", "80", False),
        ("0.80 GB", "80", False),
    ],
)
def test_a_number_in_a_text_is_not_a_part_of_another(text, number, has):
    assert has_number(text, number) is has
