"""The benchmark of the benchmark."""

import pytest

from benchmarks.bandwidth import bench_by_loop, within_3_percent


@pytest.mark.parametrize(("ratio", "holds"), [(0.96, False), (0.98, True), (1.02, True), (1.04, False)])
def test_three_percent_to_either_side_are_within_three_percent(ratio, holds):
    assert within_3_percent.test(ratio, 0.0) is holds


def test_the_benchmark_and_a_bare_loop_measure_the_same_thing_on_real_ranks(monkeypatch):
    monkeypatch.setattr("benchmarks.bandwidth.NBYTES", 1 << 20)
    monkeypatch.setattr("benchmarks.bandwidth.TURNS", 3)
    samples = bench_by_loop()
    assert 0.1 < next(samples) < 10  # the figure of a quiet machine is in benchmarks/results.md
    samples.close()
