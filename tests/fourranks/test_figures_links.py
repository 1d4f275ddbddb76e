"""The share of communication over the speed of links: models are lines, runs and predictions are points."""

import pytest

from fourranks.figures import links

PNG = b"\x89PNG"


def test_models_are_lines_over_bandwidth_and_runs_are_points():
    figure = links({"half": lambda _: 0.5}, {"here": (1e9, 0.25)}, {"NVLink": 450e9, "slow": 1e8})
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines["half"].get_ydata()) == {0.5}
    assert min(lines["half"].get_xdata()) < 1e8 and max(lines["half"].get_xdata()) > 450e9
    assert (list(lines["here"].get_xdata()), list(lines["here"].get_ydata())) == ([1e9], [0.25])
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.texts] == ["NVLink", "slow"]
    assert figure.png().startswith(PNG)


def test_a_predicted_share_stands_at_its_link_and_a_missing_one_nowhere():
    figure = links({"half": lambda _: 0.5}, {}, {"NVLink": 450e9, "slow": 1e8}, {"slow": 0.9, "NVLink": None})
    (yours,) = [line for line in figure.axes[0].lines if line.get_label() == "your prediction"]
    assert (list(yours.get_xdata()), list(yours.get_ydata())) == ([1e8], [0.9])
    without = links({"half": lambda _: 0.5}, {}, {"slow": 1e8}, {"slow": None})
    assert all(line.get_label() != "your prediction" for line in without.axes[0].lines)


def test_more_models_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="draw at most 4"):
        links({str(number): lambda _: 0.0 for number in range(5)}, {}, {"slow": 1e8})
