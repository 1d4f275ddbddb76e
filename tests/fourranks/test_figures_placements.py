"""Placements show each rank's part of a matrix in its colour, and where it lies."""

import pytest

from fourranks.figures import placements
from fourranks.views.style import rank_colour, tint

PNG = b"\x89PNG"


def parts(axes):
    """The filled rectangles of a figure, by colour: (x, y, width, height) in inches."""
    found = {}
    for patch in axes.patches:
        if patch.get_facecolor()[3]:
            found[patch.get_facecolor()[:3]] = (*patch.get_xy(), patch.get_width(), patch.get_height())
    return found


def of_ranks(figure, world_size=4):
    """Where each rank's part lies."""
    found = parts(figure.axes[0])
    return [found[tint(rank_colour(rank), 0.55)] for rank in range(world_size)]


def test_columns_lie_beside_each_other_and_rows_below_each_other():
    columns = of_ranks(placements([("W", 1, 2, "columns")]))
    assert all(part[1] == columns[0][1] and part[2] == pytest.approx(columns[0][3] / 2) for part in columns)
    assert [part[0] for part in columns] == pytest.approx(
        [columns[0][0] + r * columns[0][2] for r in range(4)]
    )
    rows = of_ranks(placements([("W", 2, 1, "rows")], world_size=3), 3)
    assert all(part[0] == rows[0][0] for part in rows)
    assert [part[1] for part in rows] == pytest.approx([rows[0][1] + rank * rows[0][3] for rank in range(3)])


def test_every_rank_has_a_partial_sum_of_the_full_size_and_the_first_lies_in_front():
    figure = placements([("z", 1, 2, "partial")])
    sheets = of_ranks(figure)
    assert {part[2:] for part in sheets} == {sheets[0][2:]}
    assert sheets[0][2] == pytest.approx(2 * sheets[0][3])
    assert figure.axes[0].patches[-1].get_facecolor()[:3] == tint(rank_colour(0), 0.55)


def test_what_is_replicated_has_no_rank_s_colour_and_everything_has_its_name():
    formula = [("x", 1, 1, "replicate"), "·", ("W", 1, 1, "columns")]
    figure = placements(formula, "a title")
    colours = set(parts(figure.axes[0]))
    assert len(colours) == 5 and colours > {tint(rank_colour(rank), 0.55) for rank in range(4)}
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["a title", "x", "replicated", "·", "W", "columns"]
    assert figure.png().startswith(PNG)


def test_a_long_formula_stays_on_the_page():
    figure = placements([("W", 1, 4, "columns"), "→ all-gather →"] * 4)
    assert figure.get_figwidth() <= 9.01
    assert max(x + width for x, _, width, _ in parts(figure.axes[0]).values()) < 9


def test_a_placement_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'sharded' is no placement; choose one of replicate, rows"):
        placements([("x", 1, 1, "sharded")])
