"""Beyond what `test_checks` asks of sharded data parallelism: other right ways, and what references do."""

import re

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check
from autograder.inside.runs import RunFailed
from autograder.kit import judge
from autograder.kit.settings import settings_of
from autograder.topics.sharded_data_parallelism import held_memory
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "05_sharded_data_parallelism"
OPERATIONS = (
    "training_bytes",
    "sharded_optimizer",
    "sharded_gradients",
    "sharded_parameter",
    "sharded_module",
    "fully_sharded_data_parallel",
    "prefetching_fully_sharded_data_parallel",
)
FEW = {"world_sizes": (2,)}


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("sharded_optimizer", "RightOptimizer"),
        ("sharded_optimizer", "hands_the_closure_on"),
        ("sharded_gradients", "RightGradients"),
        ("sharded_parameter", "RightParameter"),
        ("sharded_module", "RightModule"),
        ("fully_sharded_data_parallel", "RightShards"),
        ("prefetching_fully_sharded_data_parallel", "RightPrefetching"),
    ],
)
def test_another_way_of_being_right_passes(operation, name):
    getattr(check, operation)(shelf.wrong_solutions(TOPIC, operation)[name], world_sizes=(3,))


def test_a_rank_that_keeps_all_moments_is_told_how_much_it_may_keep():
    whole = shelf.wrong_solutions(TOPIC, "sharded_optimizer")["has_the_whole_state"]
    text = str(failure_of("sharded_optimizer", whole, **FEW))
    assert "ShardedOptimizer: right, but a rank holds too much optimizer state" in text
    assert "of 133,120 bytes" in text


def test_one_gradient_is_named_in_the_singular():
    sums = shelf.wrong_solutions(TOPIC, "sharded_parameter")["sums"]
    assert ".shard.grad after 1 gradient [0]" in str(failure_of("sharded_parameter", sums, **FEW))


def test_weights_that_are_kept_for_backward_are_told_from_layers_that_are_not_freed():
    for name, headline in {
        "keeps_weights_for_backward": "right, but parameters are kept for backward",
        "never_frees": "right, but layers are not freed in forward",
    }.items():
        wrong = shelf.wrong_solutions(TOPIC, "fully_sharded_data_parallel")[name]
        text = str(failure_of("fully_sharded_data_parallel", wrong, world_sizes=(2, 4)))
        assert f"FullyShardedDataParallel: {headline}" in text
        assert "of 147,456 bytes" in text


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("state_without_buffers", "without count, scale"),
        ("prefixes_the_state", r"without first\.bias, \S+, \S+; also module\.first\.bias, "),
    ],
)
def test_names_that_a_state_dict_lacks_are_told_from_those_that_it_has_besides(name, differing):
    wrong = shelf.mistaken(TOPIC, "fully_sharded_data_parallel", name)
    wrong.until_failure = True
    assert re.search(rf"got +{differing}", str(failure_of("fully_sharded_data_parallel", wrong, **FEW)))


class TestTheReferences:
    """The solutions do more than is asked of a student's."""

    @staticmethod
    def run(solutions, use, *names, world_size=2):
        use.__module__ = "__main__"
        return fourranks.run(use, *[solutions[n] for n in names], world_size=world_size, backend="gloo")

    def test_sharded_gradients_and_optimizer_train_as_one_process_does(self, solutions):
        def train(wrapper, optimizer):
            def make():
                torch.manual_seed(0)
                return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

            alone, wrapped = make(), wrapper(make())
            optimizers = [
                torch.optim.AdamW(alone.parameters(), lr=0.01),
                optimizer(wrapped.parameters(), torch.optim.AdamW, lr=0.01),
            ]
            schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in optimizers]
            inputs = torch.randn(3 * dist.get_world_size(), 4)
            for _ in range(3):
                for each in optimizers:
                    each.zero_grad()
                alone(inputs).square().mean().backward()
                wrapped(inputs.chunk(dist.get_world_size())[dist.get_rank()]).square().mean().backward()
                wrapped.finish_gradient_synchronization()
                for each in [*optimizers, *schedules]:
                    each.step()
            pairs = zip(alone.parameters(), wrapped.parameters(), strict=True)
            return all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)

        assert self.run(solutions, train, "ShardedGradients", "ShardedOptimizer", world_size=3) == [True] * 3

    @pytest.mark.parametrize("kind", ["LSTM", "GRU", "Conv1d", "TransformerEncoderLayer"])
    def test_modules_of_every_kind_are_sharded(self, solutions, kind):
        def train(wrapper):
            def make():
                torch.manual_seed(0)
                if kind == "TransformerEncoderLayer":
                    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
                return getattr(nn, kind)(8, 8, **({"kernel_size": 3} if kind == "Conv1d" else {}))

            def value(module):
                out = module(inputs)
                return (out if isinstance(out, torch.Tensor) else out[0]).square().mean()

            inputs = torch.randn(5, 8, 8, generator=torch.Generator().manual_seed(1))
            alone, wrapped = make(), wrapper(make(), min_shard_numel=4)
            for module in (alone, wrapped):
                value(module).backward()
            wrapped.finish_gradient_synchronization()
            for module in (alone, wrapped):
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter -= parameter.grad
            state = wrapped.full_state_dict()
            equal = all(torch.allclose(t, state[name], atol=1e-5) for name, t in alone.state_dict().items())
            with torch.no_grad():
                return equal and torch.allclose(value(alone), value(wrapped), atol=1e-5)

        assert self.run(solutions, train, "FullyShardedDataParallel") == [True, True]

    def test_gradients_of_several_finished_backwards_add_up(self, solutions):
        def train(wrapper):
            wrapped = wrapper(nn.Linear(2, 2), min_shard_numel=4)
            for _ in range(2):
                wrapped(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
                wrapped.finish_gradient_synchronization()
            return [parameter.grad.tolist() for parameter in wrapped.parameters()]

        assert self.run(solutions, train, "FullyShardedDataParallel") == [[[3.0, 3.0], [2.0, 2.0]]] * 2


def _raise(*arguments, **keywords):
    raise ValueError("no")


def _return_a_number(*arguments, **keywords):
    return 42


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("function", "kinds"),
    [(_raise, "RAISED"), (_return_a_number, "RAISED or WRONG_BYTES")],
    ids=["raises", "returns 42"],
)
def test_code_that_misbehaves_ends_in_a_verdict(operation, function, kinds):
    function.__module__ = "__main__"  # so that ranks get it by value, as a notebook's
    verdict = failure_of(operation, function, **FEW).verdict
    assert shelf.name_of(verdict.mistake) in kinds.split(" or "), verdict


def test_what_linux_counts_is_judged_only_where_somebody_asks_it():
    class Handle:
        measures, printed, timeout = False, "", 20.0

        def backends(self, world_size):
            return ("gloo",)

        def run(self, inputs, **options):
            raise RunFailed("raised", "it was run")

    (setting,) = settings_of(2, [2], seed=0)

    def problems():
        results, _ = judge._run(Handle(), held_memory.gradients(setting))
        return [shelf.name_of(result.problem.mistake) for result in results]

    assert problems() == []
    Handle.measures = True
    assert problems() == ["RAISED"]
    assert Handle.timeout == 20.0
