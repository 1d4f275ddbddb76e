"""The pictures of collectives tell the truth about the values and messages that they are given."""

from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import Image

from fourranks.trace import Call
from fourranks.views import compare, show, steps
from fourranks.views.style import RANK_COLOURS, rank_colour, tint

WORLD = 4
DIGITS = [[10**rank * (place + 1) for place in range(WORLD)] for rank in range(WORLD)]
SUMS = [1111, 2222, 3333, 4444]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def cell_origins(figure, column_from):
    """The ranks in each cell at or right of a column, told by the colours of its stripes."""
    colours = {to_hex(tint(rank_colour(rank), 0.45)): rank for rank in range(len(RANK_COLOURS))}
    found = {}
    for band in figure.axes[0].patches:
        if isinstance(band, Rectangle) and band.get_x() >= column_from:
            cell = (int(band.get_y()), int(band.get_x() - column_from))
            found.setdefault(cell, []).append(colours[to_hex(band.get_facecolor())])
    return found


def origins_after(before, after):
    figure = show(before, after)
    return cell_origins(figure, column_from=len(before[0]) + 2.4)


def test_show_prints_every_value_before_and_after():
    figure = show(DIGITS, [SUMS] * WORLD, "all_reduce")
    for value in [*sum(DIGITS, []), *SUMS]:
        assert str(value) in texts(figure)
    assert texts(figure).count("4444") == WORLD
    assert [text.get_text() for text in figure.texts] == ["all_reduce"]


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


def test_show_works_for_32_ranks():
    figure = show([[1]] * 32, [[32]] * 32, "all_reduce, 32 ranks")
    assert texts(figure).count("32") == 32


def message(calls, src, dst, start, end, seq=0, nbytes=16, recv_start=None):
    recv_start = start if recv_start is None else recv_start
    for rank, op, peer, began in ((src, "send", dst, start), (dst, "recv", src, recv_start)):
        call = Call(
            op=op, group="0", ranks=tuple(range(len(calls))), seq=seq, index=len(calls[rank]), shape=(4,),
            dtype="float32", nbytes=nbytes, part=None, peer=peer, start=began, end=end, waited=end - began,
        )  # fmt: skip
        calls[rank].append(call)


def arrows(figure):
    """Each arrow as (round, src, dst)."""
    found = []
    for note in figure.axes[0].texts:
        if isinstance(getattr(note, "arrow_patch", None), FancyArrowPatch):
            (column, src), (_, dst) = note.xyann, note.xy
            found.append((int(column), src, dst))
    return sorted(found)


def test_steps_of_a_tree_double_the_senders_in_each_round():
    calls = [[] for _ in range(8)]
    for turn, distance in enumerate((4, 2, 1)):
        for src in range(0, 8, 2 * distance):
            message(calls, src, src + distance, start=turn, end=turn + 0.9)
    expected = [(0, 0, 4), (1, 0, 2), (1, 4, 6), (2, 0, 1), (2, 2, 3), (2, 4, 5), (2, 6, 7)]
    assert arrows(steps(calls)) == expected
    assert "4 × 16 B" in texts(steps(calls))


def test_a_receive_that_was_asked_for_early_does_not_make_its_message_early():
    calls = [[], [], []]
    message(calls, 0, 2, start=0, end=1)
    message(calls, 0, 1, start=1, end=2, recv_start=-1)
    assert arrows(steps(calls)) == [(0, 0, 2), (1, 0, 1)]


def test_messages_of_one_sender_that_overlap_share_a_round():
    calls = [[], [], []]
    message(calls, 0, 1, start=0.0, end=1.0)
    message(calls, 0, 2, start=0.1, end=1.0)
    assert arrows(steps(calls)) == [(0, 0, 1), (0, 0, 2)]


def test_messages_that_follow_each_other_have_rounds_of_their_own():
    calls = [[], []]
    for seq in range(3):
        message(calls, 0, 1, start=seq, end=seq + 0.5, seq=seq, nbytes=1000 * (seq + 1))
    figure = steps(calls, "three messages")
    assert arrows(figure) == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    assert {"1 × 1,000 B", "1 × 2,000 B", "1 × 3,000 B"} <= set(texts(figure))


def test_a_receive_without_its_send_draws_no_arrow():
    calls = [[], []]
    message(calls, 0, 1, start=0, end=1)
    assert arrows(steps([[], calls[1]])) == []


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


@pytest.mark.parametrize("world_size", [1, 4, 16])
def test_figures_are_small_files_that_a_notebook_shows_at_their_size(world_size):
    figure = show([[rank] * 4 for rank in range(world_size)], [[rank] * 4 for rank in range(world_size)])
    data, size = figure._repr_png_()
    drawn = Image.open(BytesIO(data))
    assert len(data) < 60_000
    assert drawn.width >= size["width"]
    assert drawn.width / drawn.height == pytest.approx(size["width"] / size["height"], rel=0.02)


def test_the_colours_of_eight_ranks_differ():
    assert len({rank_colour(rank) for rank in range(8)}) == 8
    assert rank_colour(8) == rank_colour(0)
