"""The benchmark of fully sharded training: real steps on real ranks, in turns, to equal parameters."""

import pytest

import fourranks
from benchmarks import sharded_data_parallelism
from benchmarks.sharded_data_parallelism import BENCHMARKS, SIZES, WORLD_SIZES, WRAPPER, step_seconds
from benchmarks.training_steps import Size, definitions

TINY = Size("tiny", 2, 4, 3, 5)


@pytest.fixture(scope="module")
def wrapper():
    return definitions(sharded_data_parallelism.TOPIC)[WRAPPER]


@pytest.fixture(scope="module")
def group():
    with fourranks.start(2, "gloo") as group:
        yield group


def test_each_step_of_both_is_timed_on_every_rank_and_both_gather_as_much(wrapper, group):
    with group.trace() as trace:
        seconds = group.run(step_seconds, wrapper, TINY)
    assert [[len(own) for own in rank] for rank in seconds] == [[TINY.steps] * 2] * 2
    assert all(step > 0 for rank in seconds for own in rank for step in own)
    reduced = [call for call in trace.calls[0] if call.op == "reduce_scatter_single"]
    ours, theirs = (
        [call.nbytes for call in reduced if call.group == name] for name in sorted({c.group for c in reduced})
    )
    biases = TINY.width * 4  # of which torch's are sharded, too
    assert len(ours) == len(theirs)
    assert [nbytes + biases for nbytes in ours] == theirs


def test_a_wrapper_that_trains_another_way_is_found_out(wrapper, group):
    class Doubles(wrapper):
        def finish_gradient_synchronization(self):
            super().finish_gradient_synchronization()
            for parameter in self.parameters():
                parameter.grad *= 2

    Doubles.__module__ = "__main__"
    with pytest.raises(fourranks.RankError, match="not close"):
        group.run(step_seconds, Doubles, TINY)


def test_every_size_is_measured_by_a_function_that_its_process_finds():
    assert len(BENCHMARKS) == len(WORLD_SIZES) * len(SIZES)
    for benchmark in BENCHMARKS:
        (contender,) = benchmark.contenders
        assert getattr(sharded_data_parallelism, contender.samples.__name__) is contender.samples
