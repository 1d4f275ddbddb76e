"""Figures of measured times: every number that is given is drawn, and a prediction where there is one."""

import pytest
from matplotlib.colors import to_hex

from fourranks.figures.timings import calls, ratios, sizes
from fourranks.views.style import RANK_COLOURS

PNG = b"\x89PNG"


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else []


def test_every_call_of_every_rank_is_a_point_in_the_rank_s_colour():
    figure = calls([[0.010, 0.002, 0.002], [0.011, 0.003, 0.002]], "a title")
    (axes,) = figure.axes
    assert [len(points.get_offsets()) for points in axes.collections] == [3, 3]
    assert axes.collections[1].get_offsets()[0][1] == pytest.approx(11)  # ms
    assert axes.get_ylabel() == "ms"
    assert texts(axes) == ["rank 0", "rank 1"]
    assert [to_hex(points.get_facecolor()[0]).upper() for points in axes.collections] == list(
        RANK_COLOURS[:2]
    )
    assert figure.png().startswith(PNG)


def test_what_was_measured_is_drawn_as_points_and_models_as_lines_on_logarithmic_axes():
    measured = {"Gloo": [(1024, 1e-3), (4096, 2e-3)], "NCCL": [(1024, 1e-5)]}
    figure = sizes(measured, {"a model": [(1024, 1e-3), (4096, 3e-3)]}, "s", "a title", mark=2048, yours=512)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == ["Gloo", "NCCL", "a model", "α/β", "your prediction"]
    assert (lines["Gloo"].get_linestyle(), lines["a model"].get_linestyle()) == ("None", "-")
    assert list(lines["Gloo"].get_xdata()) == [1024, 4096]
    assert list(lines["your prediction"].get_xdata()) == [512, 512]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1 KiB", "4 KiB"]
    assert figure.png().startswith(PNG)


def test_models_are_told_apart_by_colour_and_by_dashes():
    models = {f"model {number}": [(1024, 1e-3 * (number + 1)), (4096, 2e-3)] for number in range(5)}
    (axes,) = sizes({"Gloo": [(1024, 1e-3)]}, models, yours=512).axes
    colours = [to_hex(line.get_color()) for line in axes.lines]
    assert len(set(colours)) == len(colours)
    looks = [line._dash_pattern for line in axes.lines if line.get_label().startswith("model")]
    assert len(set(map(str, looks))) == 5


def test_bandwidths_have_their_own_unit_and_a_missing_prediction_is_not_drawn():
    (axes,) = sizes({"Gloo": [(1024, 1e6), (4096, 2e9)]}, unit="B/s").axes
    assert [line.get_label() for line in axes.lines] == ["Gloo"]
    assert axes.yaxis.get_major_formatter()(1e9, None) == "1 GB/s"


def test_ratios_start_at_the_truth():
    figure = ratios({"too high": 50.0, "too low": 0.5}, {"too high": 10.0, "too low": None}, "a title")
    (axes,) = figure.axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(1, 49), (1, -0.5)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["too high:  × 50", "too low:  × 0.5"]
    assert texts(axes) == ["your prediction"]
    assert [list(line.get_xdata()) for line in axes.lines[:1]] == [[10.0]]
    assert figure.png().startswith(PNG)


def test_without_predictions_ratios_have_no_legend():
    assert texts(ratios({"a": 2.0}, {"a": None}).axes[0]) == []
