"""What readers write as predictions: numbers are drawn, and a message says how to write anything else."""

import pytest

from fourranks.figures import compare
from fourranks.figures.drawable import drawable
from fourranks.figures.timings import ratios

ODD = ["40 ms", "", [], (1, 2), {"a": 1}, True, float("nan"), float("inf"), 10**5000, "x" * 400]


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
