"""Readers' predictions: numbers are drawn, and a message says how to write anything else."""

import numpy
import pytest

from fourranks.figures import compare, curves, links, predicted, scaled
from fourranks.figures.drawable import drawable
from fourranks.figures.machine import roofline
from fourranks.figures.timings import ratios, sizes

ODD = ["40 ms", "", [], (1, 2), {"a": 1}, True, float("nan"), float("inf"), 10**5000, "x" * 400]
POINTS = [(1024, 1e-3), (4096, 2e-3)]
FIGURES = {
    "curves": lambda yours: curves({"a": [1.0, 2.0]}, yours=yours),
    "links": lambda yours: links({"a": lambda _: 0.5}, {"b": (1e9, 0.2)}, {"c": 4e9}, {"c": yours}),
    "roofline": lambda yours: roofline({"a": (1e10, 1e9)}, {1.0: 1e9}, yours),
    "sizes": lambda yours: sizes({"a": POINTS}, yours=yours),
}


@pytest.mark.parametrize("answer", [None, 0, -5, 2.5, 2**60])
def test_numbers_and_missing_predictions_are_taken_as_they_are(answer, capsys):
    assert drawable(answer) == answer
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("answer", ODD, ids=lambda answer: type(answer).__name__)
def test_bars_are_drawn_without_a_prediction_that_is_no_number_and_say_so(answer, capsys):
    figure = compare({"a": 3.0, "b": 1.0}, yours={"a": answer, "b": 2}, title="Bars")
    assert "your prediction 2" in figure.alt and figure.alt.count("your prediction") == 1
    said = capsys.readouterr().out
    assert said.startswith("Your prediction for a, ") and "Write a number without a unit" in said
    assert len(said) < 200


def test_predictions_without_their_names_are_shown_the_form_to_write_them_in(capsys):
    compare({"a": 3.0, "b": 1.0}, yours=[1, 2])
    assert 'Keep the braces: {"a": 40, "b": 40}' in capsys.readouterr().out


def test_ratios_leave_out_what_a_logarithmic_axis_cannot_hold(capsys):
    figure = ratios({"a": 2.0, "b": 0.5, "c": 1.0}, {"a": 0, "b": "half", "c": 3})
    assert "your prediction for c × 3" in figure.alt and figure.alt.count("your prediction") == 1
    assert "for b, 'half'" in capsys.readouterr().out


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
@pytest.mark.parametrize("answer", ODD, ids=lambda answer: type(answer).__name__)
def test_every_figure_is_drawn_without_a_prediction_that_is_no_number(draw, answer, capsys):
    assert draw(answer).png().startswith(b"\x89PNG")
    assert "Write a number without a unit" in capsys.readouterr().out


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
@pytest.mark.parametrize("answer", [-3, 0])
def test_every_figure_is_drawn_with_a_number_that_its_axis_may_not_hold(draw, answer, capsys):
    assert draw(answer).png().startswith(b"\x89PNG")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("answer", [*ODD, None], ids=lambda answer: type(answer).__name__)
def test_a_multiple_that_is_no_number_is_not_worked_out(answer):
    assert scaled(answer, 2.0) is None


def test_a_multiple_is_worked_out_in_its_unit():
    assert scaled(-3, 2.5) == -7.5


def test_one_of_several_predictions_is_picked_by_its_name_and_stands_for_all_without():
    assert predicted({"a": 1, "b": 2}, of="b") == "you predicted: 2   "
    assert predicted({"a": 1}, of="b") == predicted({"a": None}, of="a") == ""
    assert predicted(3, of="b") == "you predicted: 3   "
    assert predicted([1, 2], of="b") == "you predicted: [1, 2]   "


def test_a_prediction_that_is_an_array_is_told_like_any_other():
    assert predicted(numpy.array([1, 2])) == "you predicted: [1 2]   "


def test_a_curve_marks_the_place_that_was_predicted():
    figure = curves({"a": [1.0, 2.0]}, marks={0: "begin"}, yours=1)
    assert figure.alt.endswith("begin at 0; your prediction at 1")
