"""The timeline shows who waited for whom, and leaves nothing out that it has room for."""

import pytest
from matplotlib.collections import PolyCollection

from fourranks.views.timeline import timeline

from .traces import call, trace

KINDS = ["computing", "in flight", "waiting", "moving"]  # in the order in which each rank's are drawn
EVERYONE = tuple(range(32))


def bars(figure, rank):
    """The rank's bars by kind, as [(start, end)] in the unit of the axis."""
    drawn = [item for item in figure.axes[0].collections if isinstance(item, PolyCollection)]
    mine = drawn[len(KINDS) * rank : len(KINDS) * (rank + 1)]
    return {
        kind: list(map(extent, kind_bars.get_paths())) for kind, kind_bars in zip(KINDS, mine, strict=True)
    }


def extent(path):
    places = path.vertices[:, 0]
    return pytest.approx(places.min(), abs=1e-6), pytest.approx(places.max(), abs=1e-6)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def many_calls(number, length, ranks):
    return trace(*([call("all_reduce", n, n + length, seq=n) for n in range(number)] for _ in range(ranks)))


def test_bars_stand_where_the_ranks_waited_moved_data_and_computed():
    figure = timeline(trace([call("all_reduce", 10, 20)], [call("all_reduce", 16, 20)]))
    early, late = bars(figure, 0), bars(figure, 1)
    assert early["waiting"] == [(0, 6)] and early["moving"] == [(6, 10)]
    assert late["waiting"] == [] and late["moving"] == [(6, 10)]
    assert late["computing"] == [(0, 6)]


def test_an_async_call_has_a_bar_below_the_computation():
    recorded = trace(*([call("all_reduce", 0, 10, waited_ms=3, asynchronous=True)] for _ in range(2)))
    drawn = bars(timeline(recorded), 0)
    assert drawn["in flight"] == [(0, 7)] and drawn["computing"] == [(0, 7)]


def test_each_rank_has_its_bubble_beside_it_and_all_of_them_in_the_headline():
    figure = timeline(trace([call("all_reduce", 0, 10)], [call("all_reduce", 5, 10)]))
    assert [text for text in texts(figure) if "%" in text] == ["50%", "0%"]
    assert figure.axes[0].get_title(loc="right") == "bubble 25%"


@pytest.mark.parametrize("milliseconds, unit", [(0.5, "µs"), (50, "ms"), (5000, "s")])
def test_the_axis_has_a_unit_that_suits_the_length_of_the_cell(milliseconds, unit):
    assert unit in texts(timeline(trace([call("barrier", 0, milliseconds, ranks=(0,))])))


def test_a_legend_says_that_computing_is_pretended_where_a_lecture_says_so():
    recorded = trace([call("barrier", 0, 10, ranks=(0,))])
    for given, told in (("", "computing"), ("pretended", "pretended")):
        labels = [text.get_text() for text in timeline(recorded, computing=given).legends[0].get_texts()]
        assert labels[0] == told and len(labels) == len(KINDS)


def test_an_operation_is_named_once_above_its_first_rank():
    rows = [[call("all_reduce", rank, 10, ranks=(0, 1, 2, 3))] for rank in range(4)]
    assert texts(timeline(trace(*rows))).count("all_reduce") == 1


def test_a_message_is_named_above_both_of_its_ranks():
    figure = timeline(trace([call("send", 5, 8, peer=1)], [call("recv", 0, 8, peer=0)]))
    assert {"send", "recv"} <= set(texts(figure))


def test_a_message_is_named_though_an_earlier_one_comes_after_it():
    first = [call("send", 90, 100, peer=1, ranks=(0, 1))]
    middle = [call("recv", 1, 100, peer=0, ranks=(0, 1)), call("send", 190, 200, peer=2, ranks=(1, 2))]
    last = [call("recv", 0, 200, peer=1, ranks=(1, 2))]
    assert sorted(texts(timeline(trace(first, middle, last))))[-4:] == ["recv", "recv", "send", "send"]


def test_names_that_would_overlap_are_left_out():
    assert 1 < texts(timeline(many_calls(200, 0.5, ranks=2))).count("all_reduce") < 40


def test_every_rank_of_a_large_world_has_its_row():
    figure = timeline(trace(*([call("barrier", rank / 10, 5, ranks=EVERYONE)] for rank in EVERYONE)))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        f"rank {rank}" for rank in EVERYONE
    ]
    assert len(figure.png()) < 60_000


def test_thousands_of_calls_still_make_a_small_figure():
    assert len(timeline(many_calls(3000, 0.7, ranks=4)).png()) < 60_000


def test_a_rank_that_left_no_record_has_an_empty_row():
    recorded = trace([call("barrier", 0, 5)], [call("barrier", 0, 5)])
    del recorded.cells[0][1]
    assert bars(timeline(recorded), 1) == dict.fromkeys(KINDS, [])
    assert len([text for text in texts(timeline(recorded)) if "%" in text]) == 1


def test_ranks_without_calls_say_so():
    assert "no communication recorded" in texts(timeline(trace([], [])))
