"""One rank of a large world, without the others, holds and communicates what a cluster on paper predicts."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import fourranks
from fourranks import FourRanksError, RankError
from fourranks.plan.layout import Plan
from fourranks.plan.memory import memory, rank_parameters
from fourranks.plan.transformer import Transformer

MODEL = Transformer(layers=3, hidden=64, heads=8, sequence=32, vocabulary=1)  # no table to speak of
LAYERS = MODEL.layers * MODEL.layer_parameters
ACTIVATION = 2 * MODEL.sequence * MODEL.hidden  # bytes of one sequence, in 16 bits


class Block(torch.nn.Module):
    """A layer with the parameters that `Transformer` counts."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.head_size = hidden // heads
        self.q, self.k, self.v, self.out = (torch.nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.up = torch.nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = torch.nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def blocks(layers, hidden, heads):
    torch.set_default_dtype(torch.bfloat16)
    return torch.nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))


def local_bytes(tensors):
    """Bytes that this rank holds: of a sharded tensor, its shard."""
    return sum(getattr(tensor, "_local_tensor", tensor).nbytes for tensor in tensors)


def sharded(layers, hidden, heads, sequence, pretended=False):
    """Bytes of weights and of gradients after a step of FSDP; of pretended tensors, nothing is computed."""
    from contextlib import nullcontext

    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with FakeTensorMode(allow_non_fake_inputs=True) if pretended else nullcontext():
        model = blocks(layers, hidden, heads)
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model(torch.randn(1, sequence, hidden)).sum().backward()
        return local_bytes(model.parameters()), local_bytes(each.grad for each in model.parameters())


def test_code_finds_the_place_that_was_asked_for():
    def place():
        import os

        half = dist.new_group(range(512, 1024))
        return dist.get_rank(), dist.get_world_size(), dist.get_rank(half), os.environ["RANK"]

    assert fourranks.run_virtual(place, world_size=1024, rank=700).value == (700, 1024, 188, "700")


def test_messages_and_collectives_return_at_once_and_are_counted():
    def communicate(x):
        dist.send(x, 18)
        dist.recv(x, 16)
        for work in [dist.isend(x, 900), dist.irecv(x, 3)]:
            work.wait()
        dist.all_reduce(x)
        dist.barrier()

    seen = fourranks.run_virtual(communicate, torch.ones(4), world_size=1024, rank=17)
    assert seen.traffic() == {
        ("send", 1024, 16): 2,
        ("recv", 1024, 16): 2,
        ("all_reduce", 1024, 16): 1,
        ("barrier", 1024, 0): 1,
    }
    assert [call.peer for call in seen.calls] == [18, 16, 900, 3, None, None]
    assert str(seen).splitlines()[1].split() == ["send", "1024", "16", "2"]


def test_fsdp_holds_and_moves_what_zero_3_does_on_paper():
    ranks = 32
    seen = fourranks.run_virtual(
        sharded, MODEL.layers, MODEL.hidden, MODEL.heads, MODEL.sequence, world_size=ranks, rank=5
    )
    paper = memory(MODEL, Plan(data=ranks, batch=ranks, zero=2))
    tables = MODEL.embedding_parameters
    assert seen.value == (2 * LAYERS / ranks, 2 * LAYERS / ranks)
    assert seen.value[1] == paper.gradients - 2 * tables / ranks
    moved = {"all_gather_single": 0, "reduce_scatter_single": 0}
    for (op, group, nbytes), count in seen.traffic().items():
        assert group == ranks
        moved[op.replace("into_tensor", "single").replace("scatter_tensor", "scatter_single")] += (
            count * nbytes
        )
    # Parameters are gathered for forward and once more for backward; gradients leave once.
    assert moved == {
        "all_gather_single": 2 * 2 * LAYERS / ranks,
        "reduce_scatter_single": 2 * LAYERS,
    }


def test_tensor_parallelism_moves_four_activations_a_layer():
    def cut(layers, hidden, heads, sequence):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (32, 8), mesh_dim_names=("data", "tensor"))
        model = blocks(layers, hidden, heads)
        for block in model:
            columns = dict.fromkeys(("q", "k", "v", "up"), ColwiseParallel())
            parallelize_module(
                block, mesh["tensor"], columns | dict.fromkeys(("out", "down"), RowwiseParallel())
            )
        model(torch.randn(1, sequence, hidden, requires_grad=True)).sum().backward()
        return sum(each.to_local().numel() for each in model.parameters())

    seen = fourranks.run_virtual(
        cut, MODEL.layers, MODEL.hidden, MODEL.heads, MODEL.sequence, world_size=256, rank=100
    )
    assert seen.value == rank_parameters(MODEL, Plan(tensor=8)) - MODEL.embedding_parameters / 8
    reduced = sum(
        n
        for (op, group, size), n in seen.traffic().items()
        if (op, group, size) == ("all_reduce", 8, ACTIVATION)
    )
    assert reduced >= 4 * MODEL.layers


def test_ddp_reduces_every_gradient_once():
    def replicated(layers, hidden, heads, sequence):
        model = torch.nn.parallel.DistributedDataParallel(blocks(layers, hidden, heads))
        model(torch.randn(1, sequence, hidden)).sum().backward()

    seen = fourranks.run_virtual(
        replicated, MODEL.layers, MODEL.hidden, MODEL.heads, MODEL.sequence, world_size=1024
    )
    reduced = [call.nbytes for call in seen.calls if call.op == "all_reduce"]
    assert sum(reduced) == 2 * LAYERS


def test_a_layer_of_a_large_model_is_looked_at_without_its_memory():
    hidden, ranks = 8192, 64
    seen = fourranks.run_virtual(sharded, 1, hidden, 64, 4096, True, world_size=ranks)
    assert seen.value[0] == 2 * 12 * hidden**2 / ranks


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_that_does_not_exist_is_refused(rank):
    with pytest.raises(FourRanksError, match=f"A world of 8 ranks has no rank {rank}"):
        fourranks.run_virtual(lambda: None, world_size=8, rank=rank)


@pytest.mark.parametrize(("rank", "world_size"), [(0, "8"), (1.5, 8), (None, 8)])
def test_what_is_no_whole_number_is_refused(rank, world_size):
    with pytest.raises(FourRanksError, match="are whole numbers, not"):
        fourranks.run_virtual(lambda: None, world_size=world_size, rank=rank)


def test_what_the_function_raises_comes_back_with_its_line():
    def fail():
        raise ValueError("no such layer")

    with pytest.raises(RankError, match="no such layer"):
        fourranks.run_virtual(fail, world_size=8)
