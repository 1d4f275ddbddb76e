"""Curves show the values that they are given, each under its name."""

from itertools import combinations

import pytest
from matplotlib.text import Text

from fourranks.figures import curves


def drawn(figure):
    """For each name in the legend its values, as {place: value}."""
    return {
        line.get_label(): dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in figure.axes[0].get_lines()
    }


def is_headline(artist):
    return isinstance(artist, Text) and artist.get_text() == "headline"


def test_values_stand_at_their_number_or_at_their_place():
    figure = curves({"by step": [3.0, 2.0], "by time": ([0.5, 0.7], [1.0, 4.0])})
    assert drawn(figure) == {"by step": {0: 3.0, 1: 2.0}, "by time": {0.5: 1.0, 0.7: 4.0}}
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == ["by step", "by time"]


def test_a_run_that_diverges_is_cut_off_and_a_mark_has_its_name():
    figure = curves({"diverges": [1.0, 1e30]}, log=True, top=10, marks={0.5: "killed"})
    axes = figure.axes[0]
    assert axes.get_ylim()[1] == 10 and axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.texts] == ["killed"]
    assert axes.get_lines()[1].get_xdata()[0] == 0.5


def test_names_of_marks_stand_above_the_axes_clear_of_each_other_and_of_the_lines():
    marks = {0.0: "making", 4.0: "step 1", 7.0: "step 2", 50.0: "step 3"}
    figure = curves({"allocated": ([0.0, 100.0], [1.0, 2.0])}, title="headline", marks=marks)
    (axes,) = figure.axes
    figure.canvas.draw()
    names = {text.get_text(): text.get_window_extent() for text in axes.texts}
    (headline,) = (text.get_window_extent() for text in axes.findobj(match=is_headline))
    assert not any(one.overlaps(other) for one, other in combinations(names.values(), 2))
    assert all(axes.bbox.y1 < name.y0 and name.y1 < headline.y0 for name in names.values())
    lines = [line.get_window_extent() for line in axes.get_lines()[1:]]
    assert len(lines) == 4
    assert not any(name.overlaps(line) for name in names.values() for line in lines)


def test_more_lines_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="draw at most 8"):
        curves({str(number): [0.0] for number in range(9)})
