"""The timeline shows who waited for whom, and leaves nothing out that it has room for."""

import pytest
from matplotlib.collections import PolyCollection

from fourranks.trace import Call
from fourranks.views import timeline

KINDS = ["computing", "in flight", "waiting", "moving"]  # in the order in which each rank's are drawn


def call(op, start_ms, end_ms, waited_ms=None, ranks=(0, 1), **fields):
    """A recorded call; a synchronous one waits from its start to its end."""
    waited_ms = (end_ms or start_ms) - start_ms if waited_ms is None else waited_ms
    given = {
        "group": "0",
        "seq": 0,
        "index": 0,
        "shape": (1,),
        "dtype": "float32",
        "nbytes": 4,
        "part": 1,
        **fields,
    }
    end = None if end_ms is None else end_ms / 1000
    return Call(op=op, ranks=ranks, start=start_ms / 1000, end=end, waited=waited_ms / 1000, **given)


def spans(figure, rank):
    """The rank's spans by kind, as [(start, end)] in ms."""
    drawn = [item for item in figure.axes[0].collections if isinstance(item, PolyCollection)]
    mine = drawn[len(KINDS) * rank : len(KINDS) * (rank + 1)]
    return {
        kind: [
            (
                pytest.approx(path.vertices[:, 0].min(), abs=1e-6),
                pytest.approx(path.vertices[:, 0].max(), abs=1e-6),
            )
            for path in bars.get_paths()
        ]
        for kind, bars in zip(KINDS, mine, strict=True)
    }


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_rank_waits_until_the_last_rank_has_come_and_then_data_moves():
    figure = timeline([[call("all_reduce", 10, 20)], [call("all_reduce", 16, 20)]])
    early, late = spans(figure, 0), spans(figure, 1)
    assert early["waiting"] == [(0, 6)] and early["moving"] == [(6, 10)]
    assert late["waiting"] == [] and late["moving"] == [(6, 10)]
    assert late["computing"] == [(0, 6)]


def test_an_async_call_is_in_flight_until_its_wait_begins():
    row = [call("all_reduce", 0, 10, waited_ms=3)]
    assert spans(timeline([row, row]), 0)["in flight"] == [(0, 7)]
    assert spans(timeline([row, row]), 0)["moving"] == [(7, 10)]


def test_a_call_that_another_rank_never_made_is_waiting_to_the_end():
    figure = timeline([[call("all_reduce", 0, 10)], [call("broadcast", 4, 10)]])
    assert spans(figure, 0)["waiting"] == [(0, 10)]
    assert spans(figure, 1)["waiting"] == [(4, 10)]
    assert {"all_reduce", "broadcast"} <= set(texts(figure))


def test_a_call_that_was_never_waited_for_does_not_count_as_blocked():
    drawn = spans(timeline([[call("all_reduce", 0, None), call("barrier", 5, 9, seq=1)], []]), 0)
    assert len(drawn["in flight"]) == 1
    assert drawn["waiting"] == [(5, 9)]


def test_a_receive_waits_for_the_matching_send():
    sender = [call("send", 5, 8, peer=1)]
    receiver = [call("recv", 0, 8, peer=0)]
    figure = timeline([sender, receiver])
    assert spans(figure, 1)["waiting"] == [(0, 5)]
    assert spans(figure, 1)["moving"] == [(5, 8)]
    assert {"send", "recv"} <= set(texts(figure))


def test_an_operation_is_named_once_above_its_first_rank():
    rows = [[call("all_reduce", rank, 10, ranks=(0, 1, 2, 3))] for rank in range(4)]
    assert texts(timeline(rows)).count("all_reduce") == 1


def test_names_that_would_overlap_are_left_out():
    row = [call("all_reduce", start, start + 0.5, seq=start) for start in range(200)]
    assert 1 < texts(timeline([row, row])).count("all_reduce") < 40


def test_every_rank_of_a_large_world_has_its_row():
    rows = [[call("barrier", rank / 10, 5, ranks=tuple(range(32)))] for rank in range(32)]
    figure = timeline(rows)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        f"rank {rank}" for rank in range(32)
    ]
    assert len(figure._repr_png_()[0]) < 60_000


def test_thousands_of_calls_still_make_a_small_figure():
    row = [call("all_reduce", start, start + 0.7, seq=start) for start in range(3000)]
    assert len(timeline([row] * 4)._repr_png_()[0]) < 60_000


def test_ranks_without_calls_say_so():
    assert "no communication recorded" in texts(timeline([[], []]))
