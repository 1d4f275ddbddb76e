"""The recording process group: every path to a collective is seen, and torch notices nothing."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import fourranks

has_hooks = pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "register_pre_hook"), reason="hooks of a group came with torch 2.15"
)


@pytest.fixture(scope="module")
def pair():
    with fourranks.start(2, "gloo") as group:
        yield group


def ops(group, source, rank=0):
    """The operations that a cell issued on one rank."""
    with group.trace() as trace:
        group.execute(source)
    return [call.op for call in trace.calls[rank]]


COLLECTIVES = {
    "dist.all_reduce(x)": "all_reduce",
    "dist.broadcast(x, 0)": "broadcast",
    "dist.reduce(x, 1)": "reduce",
    "dist.all_gather([torch.empty(4), torch.empty(4)], x)": "all_gather",
    "dist.all_gather_single(torch.empty(8), x)": "all_gather_single",
    "dist.reduce_scatter(torch.empty(2), list(x.chunk(2)))": "reduce_scatter",
    "dist.reduce_scatter_single(torch.empty(2), x)": "reduce_scatter_single",
    "dist.gather(x, [torch.empty(4), torch.empty(4)] if rank == 0 else None, 0)": "gather",
    "dist.scatter(x, [torch.ones(4), torch.ones(4)] if rank == 0 else None, 0)": "scatter",
    "dist.all_to_all(list(torch.empty(4).chunk(2)), list(x.chunk(2)))": "all_to_all",
    "dist.all_to_all_single(torch.empty(4), x)": "all_to_all_single",
    "dist.barrier()": "barrier",
    "dist.all_reduce(x, async_op=True).wait()": "all_reduce",
    "dist.reduce_scatter_single(torch.empty(2), x, async_op=True).wait()": "reduce_scatter_single",
    "torch.ops._c10d_functional.all_reduce(x, 'sum', dist.group.WORLD.group_name)": "all_reduce",
}


@pytest.mark.parametrize("source", COLLECTIVES)
def test_every_collective_is_recorded_once(pair, source):
    assert ops(pair, f"x = torch.ones(4)\n{source}") == [COLLECTIVES[source]]


def test_point_to_point_calls_name_their_peer_and_bytes(pair):
    with pair.trace() as trace:
        pair.execute("x = torch.ones(5)\ndist.send(x, 1) if rank == 0 else dist.recv(x, 0)")
    (sent,), (received,) = trace.calls
    assert (sent.op, sent.peer, sent.nbytes) == ("send", 1, 20)
    assert (received.op, received.peer) == ("recv", 0)
    assert trace.bytes_sent(0) == 20


def test_a_message_that_the_backend_refuses_was_never_sent(pair):
    cell = "dist.isend(torch.ones(3, 2).t(), 1) if rank == 0 else dist.recv(torch.ones(2, 3), 0)"
    with pytest.raises(fourranks.RankError, match="contiguous"):  # instead of a wait until the limit
        pair.execute(cell, timeout=10)


def test_batched_and_any_source_messages_are_recorded(pair):
    batch = (
        "requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), 1 - rank),"
        " dist.P2POp(dist.irecv, torch.ones(1), 1 - rank)])\n[request.wait() for request in requests]"
    )
    assert ops(pair, batch) == ["send", "recv"]
    with pair.trace() as trace:
        pair.execute("source = dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1))")
    assert trace.calls[1][0].peer == 0  # known once the message is there
    assert pair.pull("source") == [None, 0]


def test_a_call_carries_what_a_reader_wants_to_know(pair):
    with pair.trace() as trace:
        pair.execute("x = torch.ones(2, 3, dtype=torch.float64)\n\ndist.reduce(x, 1, op=dist.ReduceOp.MAX)")
    call = trace.calls[0][0]
    assert (call.op, call.root, call.reduce_op, call.shape, call.dtype) == (
        "reduce",
        1,
        "MAX",
        (2, 3),
        "float64",
    )
    assert (call.ranks, call.nbytes, call.line) == ((0, 1), 48, 3)
    assert call.start < call.end
    assert 0 < call.waited <= call.end - call.start


def test_the_clocks_of_the_ranks_agree(pair):
    with pair.trace() as trace:
        pair.execute("dist.barrier()")
    first, second = (calls[0] for calls in trace.calls)
    assert max(first.start, second.start) <= min(first.end, second.end)  # no rank leaves before both came


def test_an_async_call_that_nobody_waits_for_has_no_end(pair):
    with pair.trace() as trace:
        pair.execute("work = dist.all_reduce(torch.ones(1), async_op=True)")
    assert trace.calls[0][0].end is None
    pair.execute("work.wait()")


def test_an_async_call_without_a_future_is_traced_until_its_wait(pair):
    with pair.trace() as trace:
        pair.execute(
            "work = dist.reduce_scatter_single(torch.empty(2), torch.ones(4), async_op=True)\nwork.wait()"
        )
    assert trace.calls[0][0].completed is None
    assert trace.calls[0][0].start < trace.calls[0][0].end


def test_object_collectives_subgroups_and_meshes_pass_through_it(pair):
    assert "all_gather" in ops(pair, "box = [None] * 2\ndist.all_gather_object(box, {'rank': rank})")
    assert pair.pull("box[1]['rank']") == [1, 1]
    assert ops(pair, "alone = dist.new_group([1])\nif rank == 1: dist.barrier(group=alone)", rank=1) == [
        "barrier"
    ]
    mesh = (
        "from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh('cpu', (2,))\n"
    )
    assert ops(pair, mesh + "dist.all_reduce(torch.ones(1), group=mesh.get_group())")[-1] == "all_reduce"


OBJECT_COLLECTIVES = {
    "dist.all_gather_object([None] * 2, rank)": ["all_gather", "all_gather"],
    "dist.gather_object(rank, [None] * 2 if rank == 0 else None)": ["all_gather", "gather"],
    "dist.broadcast_object_list([rank])": ["broadcast", "broadcast"],
    "dist.scatter_object_list([None], [1, 2])": ["broadcast", "scatter", "scatter"],
}


@pytest.mark.parametrize(("source", "collectives"), OBJECT_COLLECTIVES.items())
def test_collectives_of_objects_are_the_same_on_all_versions_of_torch_and_shown_as_they_were_called(
    pair, source, collectives
):
    with pair.trace() as trace:
        pair.execute(source)
    assert sorted(call.op for call in trace.calls[0]) == sorted(collectives)
    assert {call.name for call in trace.calls[0]} == {source.partition("(")[0].removeprefix("dist.")}


def test_torchs_own_data_parallelism_is_seen_and_moves_the_bytes_of_the_parameters(pair):
    step = "model(torch.ones(1, 64)).sum().backward()\n"
    pair.execute(
        "layers = [torch.nn.Linear(64, 64) for _ in range(3)]\n"
        "net = torch.nn.Sequential(*layers)\n"
        "model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)\n"
        + 2
        * step  # buckets are arranged anew after the first one
    )
    with pair.trace() as trace:
        pair.execute(step)
    assert {operation.op for operation in trace.operations} == {"all_reduce"}
    assert len(trace.operations) > 1  # one for each bucket
    parameters = pair.pull("sum(parameter.nbytes for parameter in model.parameters())")[0]
    assert sum(operation.size for operation in trace.operations) == parameters
    for call in trace.calls[0]:  # C++ code waits; the end is known although no Python code does
        assert call.asynchronous and call.start < call.completed


# Autograd hands a backward pass inside of 61 others to a thread of its own, as it does with GPU tensors: no
# function of Python's leads to the calls that DDP makes there.
IN_AUTOGRADS_OWN_THREAD = """
class Inside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, losses):
        ctx.loss, = losses
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        ctx.loss.backward()
        return gradient, None

ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
loss = ddp(torch.full((1, 4), rank + 1.0)).sum()
for _ in range(61):
    loss = Inside.apply(torch.ones(1, requires_grad=True), [loss]).sum()
loss.backward()
"""


def test_a_call_that_autograd_makes_in_a_thread_of_its_own_comes_from_the_line_of_the_backward_pass(pair):
    with pair.trace() as trace:
        pair.execute(IN_AUTOGRADS_OWN_THREAD)
    assert pair.pull("ddp.module.weight.grad.tolist()") == [[[1.5] * 4]] * 2
    (call,) = (call for call in trace.calls[0] if call.op == "all_reduce")
    assert (call.line, call.function, call.through) == (8, "backward", "the backward pass")


def test_a_call_that_a_hook_of_torchs_makes_when_another_is_over_comes_from_the_line_of_the_backward_pass(
    pair,
):
    pair.execute(
        "from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks\n"
        "ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))\n"
        "ddp.register_comm_hook(hooks.PowerSGDState(None, start_powerSGD_iter=2), hooks.powerSGD_hook)\n"
        "for _ in range(2): ddp(torch.ones(1, 32)).sum().backward()"
    )
    with pair.trace() as trace:
        pair.execute("loss = ddp(torch.ones(1, 32)).sum()\nloss.backward()")
    assert len(trace.calls[0]) > 2
    assert {(call.line, call.through) for call in trace.calls[0]} == {(2, "the backward pass")}


def test_torchs_own_sharding_is_seen(pair):
    pair.execute(
        "from torch.distributed.fsdp import fully_shard\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())\n"
        "model = fully_shard(model, mesh=init_device_mesh('cpu', (2,)))"
    )
    assert ops(pair, "model(torch.ones(1, 4)).sum().backward()") == [
        "all_gather_single",
        "reduce_scatter_single",
    ]


def test_dtensor_redistribution_is_seen(pair):
    source = (
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor import Replicate, Shard, distribute_tensor\n"
        "mesh = init_device_mesh('cpu', (2,))\n"
        "whole = distribute_tensor(torch.arange(8.), mesh, [Shard(0)]).redistribute(mesh, [Replicate()])\n"
        "total = whole.to_local().sum().item()"
    )
    assert "all_gather_single" in ops(pair, source)
    assert pair.pull("total") == [28.0, 28.0]


def test_monitored_barrier_and_futures_still_work(pair):
    pair.execute("dist.monitored_barrier()")
    pair.execute("x = torch.ones(1)\ndist.all_reduce(x, async_op=True).get_future().wait()")
    assert pair.pull("x.item()") == [2.0, 2.0]


def test_readers_may_leave_and_form_the_group_themselves(pair):
    for _ in range(3):
        pair.execute("dist.destroy_process_group()\ndist.init_process_group('gloo')\ndist.barrier()")
    assert pair.pull("(dist.get_backend(), dist.get_world_size())") == [("gloo", 2)] * 2


def test_a_rank_that_forms_the_group_alone_can_be_freed(pair):
    pair.execute("kept = rank")
    with pytest.raises(fourranks.DeadlockError, match=r"(?s)Rank 1 waits in init_process_group.*for rank 0"):
        pair.execute("dist.destroy_process_group()\nif rank: dist.init_process_group('gloo')")
    pair.execute("dist.barrier()")
    assert pair.pull("kept") == [0, 1]


def test_results_are_those_of_torch(pair):
    x = torch.randn(1000)
    pair.push(x=x)
    pair.execute("y = x * (rank + 1)\ndist.all_reduce(y)")
    assert all(torch.equal(y, x + x * 2) for y in pair.pull("y"))


def test_traces_do_not_nest(pair):
    with pair.trace(), pytest.raises(fourranks.FourRanksError, match="do not nest"), pair.trace():
        pass


def test_a_message_may_be_waited_for_twice(pair):
    pair.execute(
        "x = torch.full((2,), float(rank))\n"
        "work = dist.irecv(x, 0) if rank else dist.isend(x, 1)\n"
        "work.wait(), work.wait(), dist.barrier()",
        timeout=20,
    )
    assert pair.pull("x.tolist()") == [[0.0, 0.0], [0.0, 0.0]]


def test_a_process_group_that_the_reader_makes_in_python_does_what_it_does_without_ranks_that_wait(pair):
    pair.execute("""
        class Adds(dist.ProcessGroup):  # adds on each rank, without any communication
            def allreduce(self, tensors, options=None):
                for tensor in tensors:
                    tensor.add_(2)
                done = torch.futures.Future()
                done.set_result(tensors)
                return torch._C._distributed_c10d._create_work_from_future(done)

        def make(store, rank, size, timeout):
            return Adds(rank, size)

        dist.Backend.register_backend("adds", make, devices=["cpu"])
        dist.destroy_process_group()
        dist.init_process_group("adds")
        x = torch.ones(1)
        if rank == 0:
            dist.all_reduce(x)
        dist.all_reduce(x, group=dist.new_group())
        found = dist.get_backend(), dist.get_world_size(), x.item()
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        dist.barrier()
    """)
    assert pair.pull("found") == [("adds", 2, 5.0), ("adds", 2, 3.0)]


OWN_GROUP = """
class Own(dist.ProcessGroup):
    name = None

    def _set_group_name(self, name):
        self.name = name

    @property
    def group_name(self):
        return self.name

    def allreduce(self, tensors, options=None):
        for tensor in tensors:
            tensor.add_(4)
        done = torch.futures.Future()
        done.set_result(tensors)
        return torch._C._distributed_c10d._create_work_from_future(done)

    def shutdown(self):
        raise RuntimeError("this group is never shut down")

dist.Backend.register_backend("own", lambda store, rank, size, timeout: Own(rank, size), devices=["cpu"])
group = dist.new_group(backend="own")
"""


def test_a_process_group_that_the_reader_makes_in_python_is_the_one_that_torch_gives_and_knows(pair):
    pair.execute(OWN_GROUP)
    pair.execute("""
        import torch.distributed._functional_collectives as functional
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.distributed_c10d import ProcessGroup

        mesh = DeviceMesh.from_group(group, "cpu")
        found = type(group), mesh.get_group() is group, dist.get_process_group_ranks(group)
        x = functional.all_reduce(torch.ones(1), "sum", group).item()

        class Subclass(ProcessGroup):
            pass

        subclass = Subclass(rank, world_size)
        counted = [isinstance(each, ProcessGroup) for each in (group, dist.group.WORLD, subclass, 1)]
        others = [isinstance(each, Subclass) for each in (group, subclass)]
        size = subclass.size()
    """)
    assert pair.pull("found[0] is Own, found[1:], x") == [(True, (True, [0, 1]), 5.0)] * 2
    assert pair.pull("counted, others, size") == [([True, True, True, False], [False, True], 2)] * 2


def test_a_reader_s_process_group_that_cannot_be_shut_down_costs_no_variables_when_ranks_are_freed(pair):
    pair.execute(f"{OWN_GROUP}kept = rank")
    with pytest.raises(fourranks.DeadlockError, match="keep their variables"):
        pair.execute("if rank == 0: dist.barrier()")
    pair.execute("dist.barrier()")
    assert pair.pull("kept") == [0, 1]


@has_hooks
def test_a_readers_hooks_are_called_until_they_are_taken_back(pair):
    pair.execute("""
        group, seen = dist.new_group([0, 1]), []
        group.register_pre_hook(1, lambda call: seen.append(("before", call.name.name)))
        group.register_post_hook(1, lambda call: seen.append(("after", call.name.name)))
        dist.all_reduce(torch.ones(1), group=group)
        group.unregister_pre_hook(1)
        dist.broadcast(torch.ones(1), 0, group=group)
        group.unregister_post_hook(1)
        dist.barrier(group)
    """)
    seen = [("before", "ALLREDUCE"), ("after", "ALLREDUCE"), ("after", "BROADCAST")]
    assert pair.pull("seen") == [seen, seen]


@has_hooks
def test_all_ranks_catch_what_a_hook_refuses_while_one_goes_on_to_another_call(pair):
    pair.execute("""
        import time
        from torch._C._distributed_c10d import NanCheckHook

        group = dist.new_group([0, 1])
        NanCheckHook.attach(group)
        for attempt in range(4):
            time.sleep(0.2 * ((rank + attempt) % 2))
            try:
                dist.all_reduce(torch.full((attempt + 1,), torch.nan), group=group)
                assert False
            except RuntimeError as error:
                assert "NaN found in input tensor" in str(error)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == 2
    """)
