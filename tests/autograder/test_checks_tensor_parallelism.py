"""Beyond `test_checks`, for tensor parallelism: other right ways, messages, the whole in use."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fourranks
from autograder import check
from autograder.unsharded import MLP, Attention
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "06_tensor_parallelism"
FEW = {"world_sizes": (3,)}  # and a group of two of them


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("gather_from_ranks", "replaces_its_own_part"),
        ("all_gather_mlp", "GathersBeforeGelu"),
        ("parallel_attention", "MasksByABuffer"),
    ],
)
def test_another_way_of_being_right_passes(operation, name):
    getattr(check, operation)(shelf.wrong_solutions(TOPIC, operation)[name], **FEW)


class TestWhatIsTold:
    @staticmethod
    def text(operation, name):
        return str(failure_of(operation, shelf.wrong_solutions(TOPIC, operation)[name], **FEW))

    def test_of_heads_that_are_cut_as_one(self):
        text = self.text("parallel_attention", "cuts_qkv_as_one")
        assert "ParallelAttention: q, k and v are cut as if they were one" in text
        assert "3 ranks, 6 heads, causal (gloo)" in text
        assert "rank 0, qkv.weight after load_full: [" in text

    def test_of_bytes_beyond_the_budget(self):
        text = self.text("all_gather_mlp", "all_reduces_between_layers")
        assert "rank 0, backward: 2 reduce_scatters of 240 bytes and 1 all_reduce of 240 bytes" in text
        assert "3 calls: dist.all_reduce in line" in text
        assert "960 bytes on the wire instead of 640" in text

    def test_of_memory_in_another_order_which_a_single_rank_never_mixes_up(self):
        wrong = shelf.wrong_solutions(TOPIC, "reduce_from_ranks")["needs_contiguous_memory"]
        told = str(failure_of("reduce_from_ranks", wrong, world_sizes=(1, 2, 3)))
        assert "Only tensors that are not contiguous go wrong" in told

    def test_of_sizes_that_do_not_divide(self):
        text = self.text("column_parallel_linear", "accepts_any_width")
        assert "4 cannot be shared by 3 ranks" in text

    def test_of_a_whole_weight(self):
        text = self.text("row_parallel_linear", "keeps_the_state_dict")
        assert "rank 0: tensors of at most 14 elements, as its largest shard" in text
        assert "one of 42" in text


def train_layer(layers: tuple, words: nn.Module, batches: list, cross_entropy) -> list[float]:
    """Losses of some steps of SGD with attention, an MLP, and an output layer."""
    attention, mlp = layers
    parameters = [p for module in (attention, mlp, words) for p in module.parameters()]
    losses = []
    for x, target in batches:
        x = x + attention(x)
        x = x + mlp(x)
        loss = cross_entropy(words(x), target)
        losses.append(loss.item())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.data -= 0.5 * gradient
    return losses


def test_a_transformer_layer_and_its_loss_learn_on_four_ranks_what_they_learn_in_one_process(solutions):
    torch.manual_seed(0)
    whole = Attention(16, 4).double(), MLP(16, 32).double()
    words = nn.Linear(16, 12).double()
    batches = [(torch.randn(2, 5, 16).double(), torch.randint(12, (2, 5))) for _ in range(4)]
    states = [{name: t.clone() for name, t in module.state_dict().items()} for module in (*whole, words)]
    wanted = train_layer(whole, words, batches, lambda z, t: F.cross_entropy(z.flatten(0, 1), t.flatten()))

    def on_rank(solutions, states, batches, train_layer):
        own = [
            solutions["ParallelAttention"](16, 4).double(),
            solutions["ParallelMLP"](16, 32).double(),
            solutions["ColumnParallelLinear"](16, 12).double(),
        ]
        for module, state in zip(own, states, strict=True):
            module.load_full(state)
        return train_layer(tuple(own[:2]), own[2], batches, solutions["vocab_parallel_cross_entropy"])

    on_rank.__module__ = train_layer.__module__ = "__main__"
    names = ("ParallelAttention", "ParallelMLP", "ColumnParallelLinear", "vocab_parallel_cross_entropy")
    code = {name: solutions[name] for name in names}
    for losses in fourranks.run(on_rank, code, states, batches, train_layer, world_size=4, backend="gloo"):
        assert losses == pytest.approx(wanted, rel=1e-12)
    assert wanted[-1] != pytest.approx(wanted[0], rel=0.01)


def test_an_input_without_gradient_needs_no_all_reduce_in_backward(solutions):
    def on_rank(mlp, state):
        module = mlp(3, 4)
        module.load_full(state)
        module(torch.ones(2, 3)).sum().backward()
        return dist.get_world_size(), module.up.weight.grad is not None

    on_rank.__module__ = "__main__"
    with fourranks.start(2, "gloo") as group, group.trace() as trace:
        assert group.run(on_rank, solutions["ParallelMLP"], MLP(3, 4).state_dict()) == [(2, True)] * 2
    assert [call.op for call in trace.calls[0]] == ["all_reduce"]


def _raise(*arguments, **keywords):
    raise RuntimeError("no")


def _return_a_number(*arguments, **keywords):
    return 42


@pytest.mark.parametrize("operation", shelf.operations(TOPIC))
@pytest.mark.parametrize("function", [_raise, _return_a_number])
def test_code_that_misbehaves_ends_in_a_verdict(operation, function):
    function.__module__ = "__main__"  # so that ranks get it by value, as a notebook's
    verdict = failure_of(operation, function, **FEW).verdict
    assert shelf.name_of(verdict.mistake) in ("RAISED", "WRONG_TYPE"), verdict


def test_a_single_head_is_named_in_the_singular():
    _raise.__module__ = "__main__"
    results = failure_of("parallel_attention", _raise, world_sizes=(1,)).verdict.results
    assert [str(result.case) for result in results] == ["1 rank, 2 heads, causal", "1 rank, 1 head"]
