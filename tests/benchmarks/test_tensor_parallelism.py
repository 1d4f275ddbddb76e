"""The benchmark of the exercise's MLP: real steps on real ranks, in turns, to equal shards."""

import pytest

import fourranks
from benchmarks import tensor_parallelism
from benchmarks.tensor_parallelism import BENCHMARKS, SIZES, WORLD_SIZES, Size
from benchmarks.training_steps import WARM_UP, definitions

TINY = Size("tiny", 4, 3, 5)


@pytest.fixture(scope="module")
def notebook():
    return definitions(tensor_parallelism.TOPIC)


@pytest.fixture(scope="module")
def group():
    with fourranks.start(2, "gloo") as group:
        yield group


def test_each_step_of_both_is_timed_and_both_communicate_alike(notebook, group):
    with group.trace() as trace:
        seconds = group.run(tensor_parallelism.step_seconds, notebook["ParallelMLP"], TINY)
    assert [[len(own) for own in rank] for rank in seconds] == [[TINY.steps] * 2] * 2
    assert all(step > 0 for rank in seconds for own in rank for step in own)
    calls = [call for call in trace.calls[0] if call.op == "all_reduce"]
    own, theirs = ([c.nbytes for c in calls if c.group == name] for name in sorted({c.group for c in calls}))
    assert own == theirs == [48] * 2 * (TINY.steps + WARM_UP)


def test_an_mlp_that_learns_something_else_is_found_out(notebook, group):
    class Louder(notebook["ParallelMLP"]):
        def forward(self, x):
            return 2 * super().forward(x)

    Louder.__module__ = "__main__"
    with pytest.raises(fourranks.RankError, match="not close"):
        group.run(tensor_parallelism.step_seconds, Louder, TINY)


def test_every_size_is_measured_by_a_function_that_its_process_finds():
    assert len(BENCHMARKS) == len(WORLD_SIZES) * len(SIZES)
    for benchmark in BENCHMARKS:
        (contender,) = benchmark.contenders
        assert getattr(tensor_parallelism, contender.samples.__name__) is contender.samples
