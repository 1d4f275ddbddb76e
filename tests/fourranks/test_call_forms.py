"""Every form in which a process group may be called does on a rank what it does with torch's own group."""

from __future__ import annotations

import inspect
import re

import pytest
import torch.distributed as dist

import fourranks
from fourranks.rank.methods import METHODS

SETUP = """
import datetime, re
from torch.distributed import distributed_c10d as c10d

T, R = datetime.timedelta(seconds=20), dist.ReduceOp
O = torch.ones(1)
S = [3, 1] if rank == 0 else [1, 3]

def opts(kind, **fields):
    made = getattr(c10d, kind + "Options")()
    for name, value in fields.items():
        setattr(made, name, value)
    return made

def ones(*shape):
    return torch.ones(*shape) * (rank + 1)

def pair():
    return [torch.zeros(4), torch.zeros(4)]

def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return "handle" if isinstance(value, dist.Work) else str(value)

def outcome(form, group):
    try:
        came = plain(eval(form, globals(), {"group": group}))
    except Exception as error:
        came = f"{type(error).__name__}: {error}"
    return re.sub("0x[0-9a-f]+|\\nInvoked with:.*", "", str(came))

def both(form):
    return outcome(form, dist.group.WORLD.inner), outcome(form, dist.group.WORLD)
"""

# x is what the rank puts in, o what takes the result; each form's outcome is that of this list.
FORMS = """
[x := ones(4), group.allreduce([x]).wait()]
[x := ones(4), group.allreduce((x,)).wait()]
[x := ones(4), group.allreduce(tensors=[x]).wait()]
[x := ones(4), group.allreduce([x], R.MAX).wait()]
[x := ones(4), group.allreduce([x], op=R.MAX, timeout=T).wait()]
[x := ones(4), group.allreduce([x], opts("Allreduce", reduceOp=R.PRODUCT)).wait()]
[x := ones(4), group.allreduce(opts=opts("Allreduce", reduceOp=R.MIN), tensors=[x]).wait()]
[x := ones(4), group.allreduce(x).wait()]
[x := ones(4), group.allreduce(tensor=x).wait()]
[x := ones(4), group.allreduce(x, R.MAX, T).wait()]
[x := ones(4), group.allreduce(x, R.MAX, None).wait()]
[x := ones(4), group.allreduce(x, timeout=T).wait()]
[x := ones(4), y := ones(3), group.allreduce_coalesced([x, y]).wait()]
[x := ones(4), group.allreduce_coalesced(tensors=[x], opts=opts("AllreduceCoalesced", reduceOp=R.MAX)).wait()]
[x := ones(4), group.broadcast([x]).wait()]
[x := ones(4), group.broadcast([x], opts("Broadcast", rootRank=1)).wait()]
[x := ones(4), group.broadcast(tensors=[x], opts=opts("Broadcast", rootRank=1)).wait()]
[x := ones(4), group.broadcast(x, 1).wait()]
[x := ones(4), group.broadcast(x, True).wait()]
[x := ones(4), group.broadcast(x, torch.tensor(1)).wait()]
[x := ones(4), group.broadcast(x, root=1).wait()]
[x := ones(4), group.broadcast(timeout=T, root=1, tensor=x).wait()]
[x := ones(4), group.reduce([x]).wait()]
[x := ones(4), group.reduce([x], opts("Reduce", rootRank=1, reduceOp=R.MAX)).wait()]
[x := ones(4), group.reduce(tensors=[x], opts=opts("Reduce", rootRank=1)).wait()]
[x := ones(4), group.reduce(x, 0).wait()]
[x := ones(4), group.reduce(x, 1, R.MAX, T).wait()]
[x := ones(4), group.reduce(tensor=x, root=1, op=R.MAX, timeout=T).wait()]
[o := pair(), group.allgather([o], [ones(4)]).wait()]
[o := pair(), group.allgather([o], [ones(4)], opts("Allgather")).wait()]
[o := pair(), group.allgather(output_tensors=[o], input_tensors=[ones(4)], opts=opts("Allgather")).wait()]
[o := pair(), group.allgather(o, ones(4)).wait()]
[o := pair(), group.allgather(o, ones(4), T).wait()]
[o := pair(), group.allgather(output_tensors=o, input_tensor=ones(4), timeout=T).wait()]
[o := pair(), group.allgather_coalesced([[o[0]], [o[1]]], [ones(4)]).wait()]
[o := pair(), group.allgather_coalesced(output_lists=[[o[0]], [o[1]]], input_list=[ones(4)]).wait()]
[o := torch.zeros(8), group._allgather_base(o, ones(4)).wait()]
[o := torch.zeros(8), group._allgather_base(output=o, input=ones(4), opts=opts("Allgather")).wait()]
[o := torch.zeros(8), group.all_gather_single(o, ones(4)).wait()]
[o := torch.zeros(8), group.all_gather_single(output=o, input=ones(4)).wait()]
[o := torch.zeros(8), group.all_gather_single_coalesced([o], [ones(4)]).wait()]
[o := torch.zeros(8), group.all_gather_single_coalesced(outputs=[o], inputs=[ones(4)]).wait()]
[o := torch.zeros(8), group.allgather_into_tensor_coalesced(outputs=[o], inputs=[ones(4)]).wait()]
[o := pair(), group.gather([o] if rank == 0 else [], [ones(4)]).wait()]
[o := pair(), group.gather([o] if rank else [], [ones(4)], opts("Gather", rootRank=1)).wait()]
[o := pair(), group.gather(o if rank == 0 else [], ones(4), 0).wait()]
[o := pair(), group.gather(output_tensors=o if rank else [], input_tensor=ones(4), root=1, timeout=T).wait()]
[o := torch.zeros(4), group.scatter([o], [[ones(4), ones(4)]] if rank == 0 else []).wait()]
[o := torch.zeros(4), group.scatter([o], [pair()] if rank else [], opts("Scatter", rootRank=1)).wait()]
[o := torch.zeros(4), group.scatter(o, [ones(4), ones(4)] if rank == 0 else [], 0).wait()]
[o := torch.zeros(4), group.scatter(output_tensor=o, input_tensors=pair() if rank else [], root=1).wait()]
[o := torch.zeros(4), group.reduce_scatter([o], [[ones(4), ones(4)]]).wait()]
[o := torch.zeros(4), group.reduce_scatter([o], [pair()], opts("ReduceScatter", reduceOp=R.MAX)).wait()]
[o := torch.zeros(4), group.reduce_scatter(o, [ones(4), ones(4)]).wait()]
[o := torch.zeros(4), group.reduce_scatter(output=o, input=[ones(4), ones(4)], op=R.MAX, timeout=T).wait()]
[o := torch.zeros(4), group._reduce_scatter_base(o, ones(8)).wait()]
[o := torch.zeros(4), group._reduce_scatter_base(outputTensor=o, inputTensor=ones(8)).wait()]
[o := torch.zeros(4), group.reduce_scatter_single(outputTensor=o, inputTensor=ones(8)).wait()]
[o := torch.zeros(4), group.reduce_scatter_single_coalesced(outputs=[o], inputs=[ones(8)]).wait()]
[o := torch.zeros(4), group.reduce_scatter_tensor_coalesced(outputs=[o], inputs=[ones(8)]).wait()]
[o := pair(), group.alltoall(o, [ones(4), ones(4)]).wait()]
[o := pair(), group.alltoall(output_tensors=o, input_tensors=pair(), opts=opts("AllToAll")).wait()]
[o := torch.zeros(4), group.alltoall_base(o, ones(4), [], []).wait()]
[o := torch.zeros(4), group.alltoall_base(o, ones(4), [2, 2], [2, 2], T).wait()]
[o := torch.zeros(4), group.alltoall_base(o, ones(4), [], [], opts("AllToAll")).wait()]
[o := torch.zeros(4), group.all_to_all_single(o, ones(4), S, S).wait()]
[group.all_to_all_single(output=ones(4), input=ones(4), output_split_sizes=[], input_split_sizes=[]).wait()]
[group.barrier().wait()]
[group.barrier(opts=opts("Barrier")).wait()]
[group.barrier(T).wait()]
[group.barrier(timeout=None).wait()]
[group.monitored_barrier()]
[group.monitored_barrier(T, True)]
[group.monitored_barrier(timeout=T, wait_all_ranks=True)]
[x := ones(4), (group.recv([x], 0, 3) if rank else group.send([x], 1, 3)).wait()]
[(group.recv([O], tag=3, srcRank=0) if rank else group.send(dstRank=1, tensors=[O], tag=3)).wait()]
[(group.recv([O], torch.tensor(0), 0) if rank else group.send([O], True, tag=torch.tensor(0))).wait()]
[x := ones(4), (group.recv_anysource([x], 0) if rank else group.send([x], 1, 0)).wait()]
[x := ones(3, 3).to_sparse(), group.allreduce([x]).wait(), x.to_dense()]
[x := ones(()), group.allreduce(x).wait()]
[x := ones(0), group.allreduce(x).wait()]
[x := ones(3, 2).t(), group.allreduce(x).wait()]
[x := ones(8)[::2], group.broadcast(x, 1).wait()]
[x := ones(1, 2, 2, 2).to(memory_format=torch.channels_last), group.allreduce(x).wait()]
[x := torch.nn.Parameter(ones(3)), group.allreduce(x).wait()]
[x := ones(3).bool(), group.allreduce(x, R.BAND).wait()]
[x := ones(3).to(torch.uint8), group.allreduce(x, R.BXOR).wait()]
[x := ones(3).half(), group.allreduce(x, R.AVG).wait()]
[x := ones(3).bfloat16(), group.allreduce(x).wait()]
[x := ones(3).to(torch.complex64), group.allreduce(x).wait()]
[x := ones(3).to("meta"), group.allreduce(x).wait()]
[w := group.barrier(), w.wait(timeout=T), w.is_completed(), w.is_success(), w.exception(), w.synchronize()]
[w := group.allreduce(ones(4)), w.wait(T), w.result(), w._get_op_type()]
[w := group.allreduce(ones(4)), w.get_future().wait(), w.wait()]
[group.name(), group.rank(), group.size(), group.group_name, group.group_desc, group.bound_device_id]
[group._get_backend_name(), group._device_types, group._has_hooks(), type(group.get_group_store())]
[type(group._get_backend(torch.device("cpu"))), isinstance(group, dist.ProcessGroup)]
[group.set_timeout(T), group.set_timeout(timeout=T)]
"""

# Calls that torch refuses: the error must be torch's own, not one of the record.
REFUSED = """
group.allreduce()
group.allreduce("x")
group.allreduce([1])
group.allreduce([])
group.allreduce([ones(4)], 3)
group.allreduce([ones(4)], nonsense=3)
group.allreduce([ones(4)], R.SUM, T, 5)
group.allreduce([ones(4), ones(3)])
group.allreduce(ones(4), dist._make_nccl_premul_sum(2.0)).wait()
group.allreduce(ones(4), R.BOR).wait()
group.allreduce(ones(2, 2).to_sparse_csr())
group.allreduce(ones(4).to(torch.float8_e4m3fn)).wait()
group.broadcast(ones(4))
group.broadcast([ones(4)], 1)
group.broadcast(ones(4), 1.0)
group.broadcast(ones(4), "1")
group.broadcast(ones(4), tensor=ones(4), root=1)
group.broadcast(ones(2, 2).to_sparse(), 0)
group.broadcast(torch.nested.nested_tensor([ones(2), ones(3)]), 0)
group.reduce(ones(4))
group.allgather([], [])
group.allgather([pair()[:1]], [ones(4)])
group.allgather([pair()], [ones(3)])
group._allgather_base(torch.zeros(7), ones(4))
group.alltoall(pair(), [ones(4)])
group.alltoall([*pair(), ones(4)], pair())
group.alltoall(None, None)
group.alltoall_base(torch.zeros(4), ones(4), [1, 2], [2, 2]).wait()
group.alltoall_base(torch.zeros(4), ones(4), [4], [4]).wait()
group.alltoall_base(torch.zeros(4), ones(4), [1, 1, 2], [1, 1, 2]).wait()
group.barrier(3)
group.barrier().wait(3)
group.monitored_barrier(3)
group.send([ones(4)], 1)
group.send(ones(4), 1 - rank, 0)
group.send([ones(4), ones(4)], 1 - rank, 0)
group.send([], 1 - rank, 0)
group.send([ones(2, 2).to_sparse()], 1 - rank, 0)
group.send([ones(2, 2).t()], 1 - rank, 0)
group.send([ones(4)], 1 - rank, -1)
group.recv([ones(4), ones(4)], 1 - rank, 0)
group.recv([ones(4)], 1 - rank, "tag")
group.recv([], 1 - rank, 0)
group.recv_anysource([ones(4), ones(4)], 0)
group.barrier().source_rank()
group._get_backend("cpu")
"""


@pytest.fixture(scope="module")
def ranks():
    with fourranks.start(2, "gloo") as group:
        group.execute(SETUP)
        yield group


def both(ranks, form):
    """The results of a form on torch's own group and on the rank's, for each rank."""
    ranks.push(form=form)
    ranks.execute("plain_outcome, outcome_here = both(form)", timeout=60)
    return ranks.pull("plain_outcome"), ranks.pull("outcome_here")


@pytest.mark.parametrize("form", FORMS.strip().splitlines())
def test_a_form_that_torch_takes_has_the_result_that_torch_gives(ranks, form):
    plain, here = both(ranks, form)
    assert not any(outcome.split(":")[0].endswith("Error") for outcome in plain)
    assert here == plain


@pytest.mark.parametrize("form", REFUSED.strip().splitlines())
def test_a_form_that_torch_refuses_is_refused_in_torchs_words(ranks, form):
    plain, here = both(ranks, form)
    assert all(outcome.split(":")[0].endswith("Error") for outcome in plain)
    assert here == plain
    ranks.execute("dist.barrier()", timeout=20)  # the ranks still count alike


@pytest.mark.parametrize("name", [name for name in METHODS if hasattr(dist.ProcessGroup, name)])
def test_the_forms_of_a_method_are_those_that_torch_documents(name):
    overloads = re.findall(
        rf"{name}\(self: \S+, ?(.*)\) ->", inspect.getdoc(getattr(dist.ProcessGroup, name))
    )
    documented = [tuple(re.findall(r"(?:^|, )(\w+): ", overload)) for overload in overloads]
    if name != "recv_anysource":  # its parameters have no names
        assert sorted(METHODS[name].forms) == sorted(documented)


def test_a_form_with_keywords_is_recorded_like_any_other(ranks):
    with ranks.trace() as trace:
        ranks.execute("dist.group.WORLD.reduce(tensor=torch.ones(3), root=1, op=dist.ReduceOp.MAX).wait()")
    (call,) = trace.calls[0]
    assert (call.op, call.root, call.reduce_op, call.nbytes) == ("reduce", 1, "MAX", 12)


def test_sparse_gradients_of_data_parallelism_are_summed_and_counted(ranks):
    with ranks.trace() as trace:
        ranks.execute(
            "torch.manual_seed(0)\n"
            "bag = torch.nn.EmbeddingBag(10, 4, sparse=True, mode='sum')\n"
            "model = torch.nn.parallel.DistributedDataParallel(bag)\n"
            "model(torch.tensor([[rank, 5]])).sum().backward()\n"
            "gradient = bag.weight.grad.to_dense()[:, 0].tolist()"
        )
    assert ranks.pull("gradient") == [[0.5, 0.5, 0, 0, 0, 1, 0, 0, 0, 0]] * 2
    assert trace.calls[0][-1].nbytes == 2 * (8 + 4 * 4)  # for each of two rows an index and four values
