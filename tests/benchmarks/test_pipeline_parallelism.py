"""The benchmark of the exercise's pipeline: real steps on real ranks, in turns, to equal weights."""

import pytest

import fourranks
from benchmarks import pipeline_parallelism
from benchmarks.pipeline_parallelism import BENCHMARKS, SIZES, WORLD_SIZES, Size

TINY = Size("tiny", 1, 4, 2, 3, 5)


@pytest.fixture(scope="module")
def group():
    with fourranks.start(2, "gloo") as group:
        yield group


def test_each_step_of_both_pipelines_is_timed_on_every_rank(group):
    seconds = group.run(pipeline_parallelism.step_seconds, pipeline_parallelism.solution(), TINY)
    assert [[len(own) for own in rank] for rank in seconds] == [[TINY.steps] * 2] * 2
    assert all(step > 0 for rank in seconds for own in rank for step in own)


def test_a_pipeline_that_trains_another_way_is_found_out(group):
    notebook = pipeline_parallelism.solution()
    run = notebook["run_pipeline"]

    def doubled(schedule, stage, microbatches, loss_fn, group):
        run(schedule, stage, microbatches, lambda outputs, targets: 2 * loss_fn(outputs, targets), group)

    doubled.__module__ = "__main__"
    with pytest.raises(fourranks.RankError, match="not close"):
        group.run(pipeline_parallelism.step_seconds, notebook | {"run_pipeline": doubled}, TINY)


def test_every_size_is_measured_by_a_function_that_its_process_finds():
    assert len(BENCHMARKS) == len(WORLD_SIZES) * len(SIZES)
    for benchmark in BENCHMARKS:
        (contender,) = benchmark.contenders
        assert getattr(pipeline_parallelism, contender.samples.__name__) is contender.samples
