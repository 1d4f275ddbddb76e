"""torch.compile makes the same of code that communicates on a rank as on torch's own groups."""

from __future__ import annotations

import pytest

import fourranks

MODELS = """
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
"""

# Each leaves its outcome in y; run as it is, and compiled.
FUNCTIONS = {
    "all_reduce": "dist.all_reduce(y)",
    "async all_reduce": "work = dist.all_reduce(y, async_op=True)\n    work.wait()",
    "barrier": "dist.barrier()",
    "broadcast": "dist.broadcast(y, 1)",
    "reduce": "dist.reduce(y, 0)",
    "send": "dist.recv(y, 0) if rank else dist.send(y, 1)",
    "messages": "for work in [dist.isend(y + 1, 1 - rank), dist.irecv(y, 1 - rank)]:\n        work.wait()",
    "batch": "dist.batch_isend_irecv([dist.P2POp((dist.isend, dist.irecv)[rank], y, 1 - rank)])[0].wait()",
    "all_gather": "both = list(torch.empty(2, 4))\n    dist.all_gather(both, y)\n    y = torch.cat(both)",
    "reduce_scatter": "half = torch.empty(2)\n    dist.reduce_scatter_single(half, y)\n    y = half",
    "all_to_all": "other = torch.empty(4)\n    dist.all_to_all_single(other, y)\n    y = other",
    "functional": "y = functional.all_reduce(y, 'sum', dist.group.WORLD)",
    "new_group": "dist.all_reduce(y, group=dist.new_group([0, 1]))",
}


@pytest.fixture(scope="module")
def ranks():
    with fourranks.start(2, "gloo") as group:
        group.execute(MODELS)
        yield group


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_function_communicates_as_it_does_uncompiled(ranks, name):
    ranks.execute(
        f"def function(x):\n    y = x * (rank + 1)\n    {FUNCTIONS[name]}\n    return y + 1\n"
        "torch._dynamo.reset()\ncompiled = torch.compile(function, backend='aot_eager')\n"
        "expected = function(torch.arange(4.))",
        timeout=60,
    )
    with ranks.trace() as trace:
        ranks.execute("found = [compiled(torch.arange(4.)) for _ in range(3)]", timeout=120)
    assert all(ranks.pull("all(torch.equal(each, expected) for each in found)"))
    assert all(trace.calls) and len(trace.calls[0]) % 3 == 0  # each time is recorded


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_line_of_a_compiled_collective_is_one_of_the_readers(ranks, program, backend):
    if backend == "inductor":
        program("g++")
    ranks.execute(
        "def function(x):\n"
        "    return functional.all_reduce(x, 'sum', dist.group.WORLD)\n"
        f"compiled = torch.compile(function, backend={backend!r}, fullgraph=True)"
    )
    with ranks.trace() as trace:
        ranks.execute("compiled(torch.ones(3))", timeout=120)
    ((call,), _) = trace.calls
    assert call.file.startswith("<ipython-input") and call.function == "function"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_data_parallelism_trains_for_many_steps(ranks, backend):
    ranks.execute(
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))\n"
        f"torch._dynamo.reset()\ncompiled = torch.compile(model, backend={backend!r})\n"
        "for step in range(4):\n"
        "    model.zero_grad()\n"
        "    compiled(torch.ones(2, 4) * (rank + 1)).sum().backward()\n"
        "gradient = model.module.weight.grad",
        timeout=120,
    )
    for gradient in ranks.pull("gradient"):
        assert gradient.unique().tolist() == [3.0]  # two rows of ones and two of twos, averaged


def test_compiled_sharded_tensors_are_gathered(ranks):
    ranks.execute(
        "mesh = init_device_mesh('cpu', (2,))\n"
        "shards = distribute_tensor(torch.arange(8.), mesh, [Shard(0)])\n"
        "gather = lambda x: (x * 2).redistribute(mesh, [Replicate()]).to_local()\n"
        "total = torch.compile(gather, backend='aot_eager', fullgraph=True)(shards).sum().item()",
        timeout=120,
    )
    assert ranks.pull("total") == [56.0, 56.0]
