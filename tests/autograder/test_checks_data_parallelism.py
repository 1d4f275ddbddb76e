"""Beyond what `test_checks` asks of data parallelism: other right ways, and what is told of wrong ones."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check
from fourranks.errors import RankError
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "04_data_parallelism"
OPERATIONS = (
    "shard_batch",
    "average_gradients",
    "distributed_data_parallel",
    "bucketed_distributed_data_parallel",
    "accumulate",
)
FEW = {"world_sizes": (2,)}  # enough to tell nearly every mistake on the shelf
WITH_GROUP = {"world_sizes": (3,)}  # and a group of two of them


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("distributed_data_parallel", "Right"),
        ("bucketed_distributed_data_parallel", "RightBucketed"),
        ("average_gradients", "averages_flat"),
        ("accumulate", "returns_a_number"),
    ],
)
def test_another_way_of_being_right_passes(operation, name):
    getattr(check, operation)(shelf.wrong_solutions(TOPIC, operation)[name], **WITH_GROUP)


def test_a_sum_is_told_apart_from_the_mean_with_both_numbers():
    sums = shelf.wrong_solutions(TOPIC, "average_gradients")["sums"]
    text = str(failure_of("average_gradients", sums, world_sizes=(3,)))
    assert "average_gradients: the sum instead of the mean" in text
    assert "3 ranks, three layers (gloo)" in text
    assert "rank 0, first.weight.grad: [" in text
    assert "(the sum over 3 ranks)" in text


def test_a_wrapper_that_starts_too_late_is_told_how_late():
    late = shelf.wrong_solutions(TOPIC, "distributed_data_parallel")["starts_in_finish"]
    text = str(failure_of("distributed_data_parallel", late, world_sizes=(1,)))
    assert "rank 0, step 1: all-reduce 1 starts when its gradient is ready" in text
    assert "5 gradients later" in text


def test_what_is_found_before_values_are_compared_is_not_called_right():
    for operation, name, headline in (
        ("average_gradients", "divides_by_the_users", "average_gradients: more is sent than the gradients"),
        ("accumulate", "sums_and_synchronizes_each_time", "accumulate: synchronized too often"),
    ):
        wrong = shelf.wrong_solutions(TOPIC, operation)[name]
        assert headline in str(failure_of(operation, wrong, **FEW))


def test_a_single_rank_need_not_communicate():
    check.average_gradients(lambda module, group=None: None, world_sizes=(1,))
    alone = shelf.wrong_solutions(TOPIC, "distributed_data_parallel")["communicates_in_company"]
    check.distributed_data_parallel(alone, world_sizes=(1,))


def test_the_same_seed_draws_the_same_inputs_and_another_seed_others():
    def text(seed):
        sums = shelf.wrong_solutions(TOPIC, "average_gradients")["sums"]
        return str(failure_of("average_gradients", sums, world_sizes=(2,), seed=seed))

    assert text(5) == text(5)
    assert text(5) != text(6).replace("seed=6", "seed=5")


class TestTheReferenceWrapper:
    """The solution does more than is asked of a student's."""

    @staticmethod
    def gradient(solutions, name, use):
        """A weight's gradient on two ranks after `use`; each backward makes one of rank + 1."""

        def on_rank(wrapper, use):
            wrapped = wrapper(nn.Linear(1, 1, bias=False))
            x = torch.full((1, 1), float(dist.get_rank() + 1))
            use(wrapped, lambda: wrapped(x).sum().backward())
            return wrapped.module.weight.grad.item()

        on_rank.__module__ = use.__module__ = "__main__"
        return fourranks.run(on_rank, solutions[name], use, world_size=2, backend="gloo")

    @pytest.mark.parametrize("name", ["DistributedDataParallel", "BucketedDistributedDataParallel"])
    def test_no_sync_nests_and_finish_does_nothing_in_it(self, name, solutions):
        def use(wrapped, backward):
            with wrapped.no_sync():
                with wrapped.no_sync():
                    pass
                backward()
                wrapped.finish_gradient_synchronization()

        assert self.gradient(solutions, name, use) == [1.0, 2.0]

    @pytest.mark.parametrize("name", ["DistributedDataParallel", "BucketedDistributedDataParallel"])
    def test_gradients_that_were_not_cleared_are_added_to(self, name, solutions):
        def use(wrapped, backward):
            for _ in range(3):
                backward()
                wrapped.finish_gradient_synchronization()

        assert self.gradient(solutions, name, use) == [4.5, 4.5]

    def test_a_second_backward_before_the_first_was_finished_is_refused(self, solutions):
        def use(wrapped, backward):
            backward()
            backward()

        with pytest.raises(RankError, match="a gradient is ready twice"):
            self.gradient(solutions, "DistributedDataParallel", use)


def _raise(*arguments, **keywords):
    raise ValueError("no")


def _return_a_number(*arguments, **keywords):
    return 42


MISBEHAVIOUR = {
    "raises": (_raise, "RAISED"),
    "returns 42": (
        _return_a_number,
        "RAISED or WRONG_TYPE or OWN_GRADIENT or NEVER_SYNCHRONIZED",
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("function", "kinds"), MISBEHAVIOUR.values(), ids=MISBEHAVIOUR)
def test_code_that_misbehaves_ends_in_a_verdict(operation, function, kinds):
    function.__module__ = "__main__"  # so that ranks get it by value, as a notebook's
    verdict = failure_of(operation, function, **FEW).verdict
    if operation == "shard_batch" and function is _raise:
        kinds = "REFUSED"  # a ValueError is what this one is asked for, elsewhere
    assert shelf.name_of(verdict.mistake) in kinds.split(" or "), verdict
