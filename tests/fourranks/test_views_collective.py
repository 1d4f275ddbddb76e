"""The pictures of collectives tell the truth about the values and messages that they are given."""

from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from PIL import Image

import fourranks
from fourranks.figures import compare
from fourranks.views.collective import show
from fourranks.views.style import RANK_COLOURS, rank_colour, tint

WORLD = 4
DIGITS = [[10**rank * (place + 1) for place in range(WORLD)] for rank in range(WORLD)]
SUMS = [1111, 2222, 3333, 4444]
CELL = 0.46  # inches


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def cell_origins(figure, side):
    """The ranks in each cell before (side 0) or after (side 1), told by the colours of its stripes."""
    colours = {to_hex(tint(rank_colour(rank), 0.45)): rank for rank in range(len(RANK_COLOURS))}
    drawn = [item for item in figure.axes[0].collections if isinstance(item, PolyCollection)][side]
    middles = [path.vertices[:4].mean(axis=0) for path in drawn.get_paths()]
    left, top = (min(middle[axis] for middle in middles) for axis in (0, 1))
    found = {}
    for (x, y), colour in zip(middles, drawn.get_facecolor(), strict=True):
        cell = (int((y - top) / CELL + 0.1), int((x - left) / CELL + 0.1))
        found.setdefault(cell, []).append(colours[to_hex(colour)])
    return found


def origins_after(before, after):
    return cell_origins(show(before, after), side=1)


def test_show_prints_every_value_before_and_after():
    figure = show(DIGITS, [SUMS] * WORLD, "all_reduce")
    for value in [*sum(DIGITS, []), *SUMS]:
        assert str(value) in texts(figure)
    assert texts(figure).count("4444") == WORLD
    assert "all_reduce" in texts(figure)


def test_moved_values_keep_the_colour_of_the_rank_they_came_from():
    transposed = [list(column) for column in zip(*DIGITS, strict=True)]
    origins = origins_after(DIGITS, transposed)
    assert origins == {(rank, src): [src] for rank in range(WORLD) for src in range(WORLD)}


def test_a_sum_is_striped_with_all_the_ranks_in_it():
    origins = origins_after(
        [[rank + place for place in range(4)] for rank in range(4)], [[6, 10, 14, 18]] * 4
    )
    assert origins == {(rank, place): [0, 1, 2, 3] for rank in range(4) for place in range(4)}


def test_a_partial_sum_is_striped_with_the_ranks_in_it_only():
    origins = origins_after(DIGITS, [SUMS, [1110, 2220, 3330, 4440], [1100, 2200, 3300, 4400], DIGITS[3]])
    assert [origins[rank, 0] for rank in range(4)] == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]]


def test_a_value_with_two_possible_origins_is_left_uncoloured():
    assert (2, 0) not in origins_after([[7], [7], [1]], [[7], [7], [7]])


def test_show_accepts_tensors_lists_of_tensors_numbers_and_nothing():
    after = [torch.tensor([[1.5, 2.0]]), [torch.ones(1), torch.zeros(1)], np.float64(0.25), None]
    shown = texts(show([5, 6, 7, 8], after))
    assert [text for text in shown if text in ("1.5", "2", "1", "0", "0.25", "–")] == [
        "1.5",
        "2",
        "1",
        "0",
        "0.25",
        "–",
    ]


@pytest.mark.parametrize("places", [1, 32])
def test_show_fits_32_ranks_on_a_page(places):
    figure = show([[1] * places] * 32, [[32] * places] * 32, "all_reduce")
    width, height = figure.get_size_inches()
    assert width < 9.5 and height < 8
    assert "rank 31" in texts(figure)


def test_show_writes_values_that_are_not_finite():
    assert {"nan", "inf"} <= set(texts(show([float("nan")], [float("inf")])))


def test_more_values_than_a_picture_has_room_for_are_refused_with_a_way_out():
    with pytest.raises(ValueError, match="holds 1,000,000 values.*smaller tensors"):
        show([torch.zeros(1_000_000)], [torch.zeros(1_000_000)])


def test_show_is_at_hand_in_the_package_itself():
    assert fourranks.show is show
    with pytest.raises(AttributeError, match="shown"):
        fourranks.shown  # noqa: B018


def test_compare_marks_only_the_predictions_that_were_made():
    measured = {"tree": 15.0, "one by one": 35.0}
    with_none = compare(measured, yours={"tree": None, "one by one": None})
    with_one = compare(measured, yours={"tree": 20.0, "one by one": None})
    labels = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in (with_none, with_one)]
    assert labels == [["measured"], ["measured", "your prediction"]]
    assert 20.0 in [x for line in with_one.axes[0].lines for x in line.get_xdata()]
    assert [label.get_text().strip() for label in with_one.axes[0].get_yticklabels()] == [
        "tree:  15",
        "one by one:  35",
    ]
    (label,) = compare({"sent": 26118.0}, unit="B").axes[0].get_yticklabels()
    assert label.get_text() == "sent:  26,118 B"


def test_the_unit_of_compare_is_clear_of_the_axis_numbers():
    figure = compare({"logits": 12288.0}, unit="KiB")
    figure.canvas.draw()
    axes = figure.axes[0]
    (unit,) = (text.get_window_extent() for text in axes.texts)
    numbers = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(numbers) > 1 and not any(unit.overlaps(number) for number in numbers)


def test_what_compare_draws_need_not_be_measured():
    figure = compare({"tree": 15.0}, label="worked out")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["worked out"]


def test_what_has_parts_is_one_bar_of_several_colours_labelled_with_its_total():
    figure = compare({"stage 0": {"weights": 4.0, "state": 8.0}, "stage 1": {"weights": 4.0, "state": 2.0}})
    axes, legend = figure.axes[0], figure.legends[0]
    assert [label.get_text().strip() for label in axes.get_yticklabels()] == ["stage 0:  12", "stage 1:  6"]
    extents = [(bar.get_y(), bar.get_x(), bar.get_width()) for bar in axes.patches]
    (first, second) = sorted({y for y, _, _ in extents})
    assert sorted(extents) == [(first, 0, 4), (first, 4, 8), (second, 0, 4), (second, 4, 2)]
    assert [text.get_text() for text in legend.get_texts()] == ["weights", "state"]
    colours = {bar.get_facecolor() for bar in axes.patches}
    assert colours == {handle.get_facecolor() for handle in legend.legend_handles} and len(colours) == 2


def test_more_parts_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="draw at most 4"):
        compare({"bar": {str(number): 1.0 for number in range(5)}})


@pytest.mark.parametrize("world_size", [1, 4, 16])
def test_figures_are_small_files_that_a_notebook_shows_at_their_size(world_size):
    figure = show([[rank] * 4 for rank in range(world_size)], [[rank] * 4 for rank in range(world_size)])
    data, size = figure.png(), figure.screen_size
    drawn = Image.open(BytesIO(data))
    assert len(data) < 60_000
    assert drawn.width >= size["width"]
    assert drawn.width / drawn.height == pytest.approx(size["width"] / size["height"], rel=0.02)


def test_a_figure_is_a_sheet_with_round_corners_on_a_dark_page():
    drawn = Image.open(BytesIO(show([1], [1]).png())).convert("RGBA")
    assert drawn.getpixel((0, 0))[3] == 0
    assert drawn.getpixel((40, 2)) == (255, 255, 255, 255)


def test_the_colours_of_eight_ranks_differ():
    assert len({rank_colour(rank) for rank in range(8)}) == 8
    assert rank_colour(8) == rank_colour(0)
