"""A schedule's figure shows each job where it was, and how much of the time stays empty."""

import pytest

from fourranks.figures import schedule


def boxes(figure):
    """All jobs that are drawn, as (left, width, bottom); without the background of each rank."""
    axes = figure.axes[0]
    paths = [path for bars in axes.collections for path in bars.get_paths()]
    extents = [path.get_extents() for path in paths]
    length = axes.get_xlim()[1]
    return sorted((e.x0, e.width, e.y0) for e in extents if e.width < length)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


TWO_RANKS = [
    [("F", 0, 5.0, 6.0), ("B", 0, 9.0, 11.0)],
    [("F", 0, 6.0, 7.0), ("B", 0, 7.0, 9.0)],
]


def test_jobs_stand_at_their_times_counted_from_the_first_and_in_their_rank_s_row():
    (first, second, third, fourth) = boxes(schedule(TWO_RANKS))
    assert [box[:2] for box in (first, second, third, fourth)] == [(0, 1), (1, 1), (2, 2), (4, 2)]
    assert first[2] == fourth[2] < second[2] == third[2]


def test_the_bubble_is_the_share_of_all_ranks_time_without_a_job():
    figure = schedule([*TWO_RANKS, []])
    assert texts(figure)[-3:] == ["50%", "50%", "100%"]
    assert figure.axes[0].get_title(loc="right") == "bubble 67%"


def test_a_job_bears_the_number_of_its_microbatch_if_there_is_room():
    figure = schedule([[("F", 12, 0.0, 1.0), ("F", 34, 1.0, 1000.0)]])
    assert "34" in texts(figure) and "12" not in texts(figure)


def test_chunks_of_a_rank_have_lanes_with_the_first_on_top():
    (first, second) = boxes(schedule([[("F", 0, 0.0, 1.0, 0), ("F", 0, 1.0, 2.0, 1)]]))
    assert first[2] < second[2]  # the axis points down


def test_only_kinds_that_occur_are_explained():
    def explained(rows):
        return [text.get_text() for text in schedule(rows).legends[0].get_texts()]

    assert explained([[("F", 0, 0.0, 1.0)]]) == ["forward", "nothing to do"]
    assert "gradients of weights" in explained([[("W", 0, 0.0, 1.0)]])


def test_a_schedule_without_jobs_is_drawn_empty():
    assert boxes(schedule([[], []])) == []


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'recv'.*kinds are 'F', 'B', 'W'"):
        schedule([[("recv", 0, 0.0, 1.0)]])
