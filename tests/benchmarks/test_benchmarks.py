"""The benchmark's harness: real processes, good contenders and bad ones."""

import subprocess
import sys

import psutil
import pytest

from benchmarks import cell, contender, table
from benchmarks.__main__ import measure
from benchmarks.contender import Session
from benchmarks.model import Benchmark, Contender, Result, at_most, faster, no_more_than
from tests.benchmarks import contenders


def measured(*functions, repeats=3):
    lines = tuple(Contender(function.__name__, function) for function in functions)
    return measure(Benchmark("a title", lines, repeats))


def row_of(peer_values, hold, reason=""):
    ours = Result(Contender("ours", contenders.counts), [2.0])
    peer = Result(Contender("peer", contenders.counts, hold), peer_values, reason)
    benchmark = Benchmark("a title", (ours.contender, peer.contender), 1)
    return table.rows(benchmark, [ours, peer]).splitlines()[1]


def test_the_median_of_a_contender_is_that_of_its_measurements():
    assert measured(contenders.counts)[0].median == 2.0


def test_a_peer_that_is_not_installed_is_a_line_of_the_table_and_the_others_go_on():
    missing, ours = measured(contenders.is_not_installed, contenders.counts)
    assert missing.reason == "not installed (a_peer_that_nobody_has)"
    assert ours.values == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "function, reason",
    [(contenders.raises, "failed: ValueError: no more"), (contenders.dies, "its process ended with code 3")],
)
def test_a_contender_that_fails_has_a_reason_in_the_place_of_figures(function, reason):
    result = measured(function)[0]
    assert (result.values, result.reason) == ([], reason)


def test_a_contender_that_hangs_is_waited_for_as_long_as_its_benchmark_says(monkeypatch):
    monkeypatch.setattr(contender, "END_PATIENCE", 0.2)
    monkeypatch.setattr(contender, "NANNY_PATIENCE", 0.2)
    line = Contender("a name", contenders.hangs)
    assert measure(Benchmark("a title", (line,), 1, patience=0.5))[0].reason == "no answer within 0.5 s"


def test_what_a_contender_leaves_behind_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(contender, "NANNY_PATIENCE", 0.2)
    session = Session(Contender("a name", contenders.leaves_a_process_behind), 0)
    pid = int(session.measure(60))
    assert session.close() == ["sleep"]
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_contenders_end_with_benchmarks_that_are_terminated():
    command = [sys.executable, "-m", "benchmarks", "large_world"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as course:
        assert "measuring" in course.stderr.readline()
        while not (started := psutil.Process(course.pid).children()):
            assert course.poll() is None
        course.terminate()
        assert "Interrupted" in course.stderr.read()
    _, left = psutil.wait_procs(started, timeout=60)  # one that was only starting finds the benchmark gone
    assert not left


def test_the_round_trip_of_a_cell_is_measured_on_real_ranks_and_nothing_is_left_behind():
    session = Session(cell.BENCHMARKS[0].contenders[0], 0)
    try:
        assert 0 < session.measure(60) < 60
    finally:
        assert session.close() == []


@pytest.mark.parametrize(
    "hold, peer_median, verdict",
    [
        (faster(50), 100.0, "≥ 50× faster: holds"),
        (faster(50), 99.0, "≥ 50× faster: **does not hold**"),
        (no_more_than(2), 1.0, "≤ 2× its time: holds"),
        (no_more_than(2), 0.9, "≤ 2× its time: **does not hold**"),
        (at_most(2, "s"), 9.0, "≤ 2 s: holds"),
        (at_most(1.9, "s"), 9.0, "≤ 1.9 s: **does not hold**"),
    ],
)
def test_a_figure_holds_or_does_not(hold, peer_median, verdict):
    assert verdict in row_of([peer_median], hold)


def test_a_figure_whose_peer_is_missing_is_not_said_to_hold():
    assert "≥ 50× faster: not measured" in row_of([], faster(50), "not installed (peer)")


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (90.0, "s", "90 s"),
        (0.0935, "s", "93.5 ms"),
        (15e-6, "s", "15 µs"),
        (0, "B", "0 B"),
        (3 << 30, "B", "3 GiB"),
    ],
)
def test_figures_are_shown_in_the_unit_that_fits(value, unit, text):
    assert table.in_unit(value, unit) == text
