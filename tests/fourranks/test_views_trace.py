"""The table and the traffic matrix of a trace: right numbers in readable units."""

import pytest

from fourranks.views import operation_table, units
from fourranks.views.traffic import traffic

from .traces import call, trace

MEBI = 1 << 20


def all_reduces(number, **fields):
    return [call("all_reduce", 10 * n, 10 * n + 2, seq=n, nbytes=MEBI, **fields) for n in range(number)]


def messages(world_size, to, nbytes=MEBI):
    """Every rank sends one message to the rank `to(rank)`."""
    ranks = tuple(range(world_size))
    rows = [[call("send", 0, 2, peer=to(rank), ranks=ranks, nbytes=nbytes)] for rank in ranks]
    for rank in ranks:
        rows[to(rank)].append(call("recv", 0, 2, peer=rank, ranks=ranks, nbytes=nbytes))
    return trace(*rows)


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_table_as_text_is_aligned_and_names_units():
    head, row = repr(trace(all_reduces(3), all_reduces(3)).table()).split("\n")
    assert head.split() == ["operation", "calls", "bytes", "time", "algbw", "busbw", "lost"]
    assert row.split("  ")[-1].strip() == "0"
    assert " ".join(row.split()) == "all_reduce 3 3 MiB 6 ms 524 MB/s 524 MB/s 0"
    assert len(head) == len(row)


def test_the_groups_are_named_where_there_are_several():
    rows = [all_reduces(1, ranks=(0, 1)), all_reduces(1, ranks=(0, 1)), all_reduces(1, ranks=(2, 3))]
    table = trace(*rows, all_reduces(1, ranks=(2, 3))).table()
    assert [line.split()[1] for line in repr(table).split("\n")] == ["ranks", "0-1", "2-3"]


def test_a_notebook_gets_the_same_numbers_with_an_explanation():
    shown = trace(all_reduces(3), all_reduces(3)).table()._repr_html_()
    assert shown.count("<tr>") == 2 and "524 MB/s" in shown
    assert "nccl-tests" in shown and "added up over ranks" in shown


def test_calls_without_an_end_are_owned_up_to():
    table = trace(all_reduces(2), all_reduces(1)).table()
    assert "The end of 1 call is not known" in table.caption
    assert "is not known" not in trace(all_reduces(2), all_reduces(2)).table().caption


def test_calls_that_were_not_recorded_are_owned_up_to(monkeypatch):
    monkeypatch.setattr(operation_table, "MAX_CALLS", 2)
    assert "first 2 calls" in trace(all_reduces(2), all_reduces(2)).table().caption
    assert "first 2 calls" not in trace(all_reduces(1), all_reduces(1)).table().caption


def test_the_rows_are_there_as_plain_records():
    (record,) = trace(all_reduces(3), all_reduces(3)).table().records
    assert record["op"] == "all_reduce" and record["nbytes"] == 3 * MEBI
    assert record["seconds"] == pytest.approx(0.006)


def test_an_empty_trace_says_so():
    table = trace([], []).table()
    assert repr(table) == "no communication recorded" and repr(table) in table._repr_html_()


def test_the_matrix_counts_what_each_rank_sent_to_each():
    assert messages(3, lambda rank: (rank + 1) % 3).traffic_matrix() == [
        [0, MEBI, 0],
        [0, 0, MEBI],
        [MEBI, 0, 0],
    ]


def test_a_small_matrix_shows_its_numbers_and_their_sums():
    figure = traffic(messages(4, lambda rank: (rank + 1) % 4))
    assert texts(figure).count("1 MiB") == 4 + 4
    assert figure.texts[0].get_text() == "4 messages, 4 MiB, on 4 ranks"


def test_a_large_matrix_tells_what_the_darkest_shade_stands_for():
    figure = traffic(messages(32, lambda rank: rank ^ 1))
    assert "darkest: 1 MiB" in figure.texts[1].get_text()
    assert len(figure.png()) < 60_000


def test_what_collectives_send_is_not_made_up():
    figure = traffic(trace(all_reduces(2), all_reduces(2)))
    assert figure.texts[0].get_text() == "no messages on 2 ranks"
    assert "without 4 MiB that the ranks put into collectives" in figure.texts[1].get_text()


@pytest.mark.parametrize(
    "text, shown",
    [
        (units.size(0), "0"),
        (units.size(1023), "1023 B"),
        (units.size(3 * MEBI // 2), "1.5 MiB"),
        (units.time(0.0123), "12.3 ms"),
        (units.time(2e-7), "0.2 µs"),
        (units.rate(2.5e9), "2.5 GB/s"),
        (units.rate(None), "–"),
    ],
)
def test_numbers_are_shown_in_the_unit_that_fits(text, shown):
    assert text == shown
