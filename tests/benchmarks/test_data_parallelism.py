"""The benchmark of the exercise's wrappers: real steps on real ranks, in turns, to equal parameters."""

import pytest

import fourranks
from benchmarks import data_parallelism
from benchmarks.data_parallelism import BENCHMARKS, SIZES, WORLD_SIZES, WRAPPERS, Size
from benchmarks.training_steps import definitions

TINY = Size("tiny", 2, 4, 3, 5)


@pytest.fixture(scope="module")
def notebook():
    return definitions(data_parallelism.TOPIC)


@pytest.fixture(scope="module")
def group():
    with fourranks.start(2, "gloo") as group:
        yield group


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_each_step_of_both_wrappers_is_timed_on_every_rank(wrapper, notebook, group):
    seconds = group.run(data_parallelism.step_seconds, notebook[wrapper], WRAPPERS[wrapper], TINY)
    assert [[len(own) for own in rank] for rank in seconds] == [[TINY.steps] * 2] * 2
    assert all(step > 0 for rank in seconds for own in rank for step in own)


def test_like_is_compared_with_like(notebook, group):
    name = "DistributedDataParallel"
    with group.trace() as trace:
        group.run(data_parallelism.step_seconds, notebook[name], WRAPPERS[name], TINY)
    calls = [call for call in trace.calls[0] if call.op == "all_reduce"]
    own, theirs = (
        [call.nbytes for call in calls if call.group == name] for name in sorted({c.group for c in calls})
    )
    assert own[-4:] == theirs[-4:]


def test_a_wrapper_that_trains_another_way_is_found_out(notebook, group):
    class Sums(notebook["DistributedDataParallel"]):
        def finish_gradient_synchronization(self):
            super().finish_gradient_synchronization()
            for parameter in self.module.parameters():
                parameter.grad *= 2

    Sums.__module__ = "__main__"
    with pytest.raises(fourranks.RankError, match="not close"):
        group.run(data_parallelism.step_seconds, Sums, {}, TINY)


def test_every_wrapper_is_measured_in_every_size_by_a_function_that_its_process_finds():
    assert len(BENCHMARKS) == len(WRAPPERS) * len(WORLD_SIZES) * len(SIZES)
    for benchmark in BENCHMARKS:
        (contender,) = benchmark.contenders
        assert getattr(data_parallelism, contender.samples.__name__) is contender.samples
