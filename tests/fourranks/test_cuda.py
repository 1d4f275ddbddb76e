"""Ranks with GPUs: one rank on NCCL, ranks that share a GPU over Gloo, several GPUs."""

import os
import re
import threading

import pytest
import torch.distributed as dist

import fourranks
from fourranks import magics, zygote
from fourranks.errors import DeadlockError, FourRanksError, RankError, StartError
from fourranks.live import RankStatus
from fourranks.placement import Placement
from fourranks.rank import cuda
from fourranks.views.status import StatusTable

MIB = 2**20


@pytest.fixture(scope="module")
def shared_gpu():
    """Three ranks that share the machine's GPUs over Gloo, for tests that leave them as they found them."""
    with fourranks.start(3, "gloo", device="cuda") as group:
        yield group


@pytest.fixture
def one_on_nccl():
    with fourranks.start(1, "nccl") as group:
        yield group


# --- without a GPU ---------------------------------------------------------------------------------------


@pytest.fixture
def staging():
    """Two ranks that treat every tensor as one on a GPU when it is sent and received."""
    with fourranks.start(2, "gloo") as group:
        group.execute("from fourranks.rank import cuda; cuda._on_gpu = lambda tensor: True")
        yield group


def test_a_staged_message_arrives_with_wait_and_not_again(staging):
    staging.execute(
        """
        x = torch.full((3,), rank + 1.0, requires_grad=True)
        received = torch.zeros(3)
        if rank == 0:
            dist.send(x, 1)
        else:
            work = dist.irecv(received, 0)
            work.wait()
            first = received.tolist()
            received += 1
            work.wait()
        """
    )
    assert staging.pull("(first, received.tolist())", ranks=[1]) == [([1.0] * 3, [2.0] * 3)]


def test_staged_messages_may_come_from_any_rank_and_in_batches(staging):
    staging.execute(
        """
        x, received = torch.full((2,), float(rank)), torch.zeros(2)
        dist.send(x, 1) if rank == 0 else None
        source = dist.recv(received) if rank == 1 else None
        swapped = torch.zeros(2)
        operations = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, swapped, 1 - rank)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        """
    )
    assert staging.pull("(source, swapped.tolist())") == [(None, [1.0, 1.0]), (0, [0.0, 0.0])]


def test_a_staged_message_that_never_comes_is_a_deadlock_like_any_other(staging):
    with pytest.raises(DeadlockError, match="Rank 1 waits in recv"):
        staging.execute("x = torch.zeros(1); dist.recv(x, 0) if rank == 1 else None")
    staging.execute("dist.all_reduce(x)")


def test_ranks_outlive_errors_of_nccl_unless_the_reader_says_otherwise(monkeypatch):
    monkeypatch.setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "1")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    with fourranks.start(1, "gloo") as group:
        group.execute("import os")
        names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_RETHROW_CUDA_ERRORS", "NCCL_SOCKET_IFNAME")
        assert group.pull(f"[os.environ[name] for name in {names}]") == [["0", "1", "lo"]]


def test_ranks_that_share_a_gpu_are_told_so_to_nccl_whatever_the_image_has_set(monkeypatch):
    monkeypatch.setattr(Placement, "ranks_per_gpu", 4)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")  # NCCL would refuse to start
    names = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS", "NCCL_SOCKET_IFNAME")
    with fourranks.start(2, "gloo") as group:
        group.execute("import os")
        assert group.pull(f"[os.environ[name] for name in {names}]") == [["1", "0", "2", "lo"]] * 2


def test_all_groups_are_aborted_at_once_as_one_may_be_in_the_way_of_another(monkeypatch):
    forgotten = []
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: forgotten.append(True))
    under_way = threading.Barrier(3, timeout=10)

    class Group:
        def abort(self):
            under_way.wait()

    for _ in range(3):  # also of torch's own type, as where it splits another one
        monkeypatch.setitem(dist.distributed_c10d._world.pg_map, Group(), ("nccl", None))
    cuda.abort_nccl()
    assert forgotten and not under_way.broken


def test_an_abort_that_outlasts_the_timeout_of_its_group_shows_no_traceback(monkeypatch):
    shown, forgotten = [], []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: forgotten.append(True))

    class Group:
        def abort(self):
            raise dist.DistBackendError("Future for ProcessGroup abort timed out after 1000 ms")

    monkeypatch.setitem(dist.distributed_c10d._world.pg_map, Group(), ("nccl", None))
    cuda.abort_nccl()
    assert forgotten and not shown


def test_where_groups_connect_at_once_members_do_so_when_all_have_come():
    with fourranks.start(3, "gloo") as group:
        group.execute(
            """
            from fourranks.rank import patches
            connected = []
            def note(backend, device):
                dist.get_group_rank(dist.group.WORLD, rank)  # the default group is there
                connected.append((backend.size(), str(device)))
            dist.ProcessGroupGloo.eager_connect_single_device = note  # does nothing, on Gloo
            patches.connect_at_once(torch.device("cpu"))  # as on a rank's GPU
            dist.new_group([0, 2])
            dist.barrier()  # a rank that leaves closes connections, which another may still be making
            dist.destroy_process_group()
            """
        )  # which forms the default group again
        assert group.pull("connected") == [[(2, "cpu"), (3, "cpu")], [(3, "cpu")], [(2, "cpu"), (3, "cpu")]]
        group.execute("connected.clear(); dist.new_group(backend='gloo'); patches.connect_at_once(None)")
        group.execute("dist.new_group()")
        assert group.pull("connected") == [[(3, "cpu")]] * 3


@pytest.fixture
def launching():
    """Two ranks that take Gloo for a backend that launches calls: one that torch waits for has no handle."""
    with fourranks.start(2, "gloo") as group:
        group.execute(
            """
            from types import SimpleNamespace
            from fourranks.rank import cuda

            everyone = dist.group.WORLD
            everyone.recorder.launches = True
            mark = SimpleNamespace(query=lambda: True, elapsed_time=lambda other: 1.0)
            cuda.record_event = lambda timed=False: mark
            all_reduce = dist.ProcessGroup.allreduce
            dist.ProcessGroup.allreduce = lambda *arguments: all_reduce(*arguments).wait() and None
            dist.ProcessGroup._start_coalescing = lambda group, device: None
            dist.ProcessGroup._end_coalescing = lambda group, device: started[-1]
            """
        )
        yield group


def test_a_launched_call_that_torch_waits_for_has_an_end(launching):
    with launching.trace() as trace:
        launching.execute("dist.all_reduce(torch.ones(1))")
    for (call,) in trace.calls:
        assert call.end is not None and not call.asynchronous


def test_a_launched_call_that_was_waited_for_keeps_no_tensor(launching):
    launching.execute(
        """
        import time
        from torch.multiprocessing.reductions import StorageWeakRef
        gathered = torch.empty(2)
        storage = StorageWeakRef(gathered.untyped_storage())
        work = dist.all_gather_single(gathered, torch.ones(1), async_op=True)
        work.wait()
        del gathered, work
        until = time.monotonic() + 0.1  # Gloo's own thread lets go a moment later
        while not storage.expired() and time.monotonic() < until:
            pass
        is_freed = storage.expired()
        """
    )
    assert launching.pull("is_freed") == [True, True]


def test_the_wait_for_a_batch_ends_all_of_its_calls(launching):
    with launching.trace() as trace:
        launching.execute(
            """
            x, y, other = torch.ones(1), torch.ones(1), 1 - rank
            everyone._start_coalescing(x.device)
            started = [everyone.send([x], other, 0), everyone.recv([y], other, 0)]
            started[0].wait()
            everyone._end_coalescing(x.device).wait()
            """
        )
    for send, recv in trace.calls:
        assert None not in (send.end, recv.end)
        assert recv.batch == (send,)


@pytest.mark.parametrize(
    "code, is_open",
    [
        ("everyone.send([x], 5, 0)", True),
        ("dist.ProcessGroup._end_coalescing = refused; everyone._end_coalescing(x.device)", False),
    ],
    ids=["in the batch", "at its end"],
)
def test_a_batch_that_an_exception_has_left_is_left_by_the_backend_too(launching, code, is_open):
    launching.execute(
        """
        left, x = [], torch.ones(1)
        cuda.leave_nccl_group = lambda backend, is_open: left.append((backend.name(), is_open))

        def refused(group, device):
            raise dist.DistBackendError("as NCCL says where it was aborted")
        """
    )
    with pytest.raises(RankError):
        launching.execute(f"everyone._start_coalescing(x.device)\n{code}")
    assert launching.pull("left") == [[("gloo", is_open)]] * 2


def test_a_batch_that_came_to_its_end_leaves_nothing_behind(launching):
    launching.execute(
        """
        left, started = [], [None]
        cuda.leave_nccl_group = lambda backend, is_open: left.append(is_open)
        everyone._start_coalescing(torch.device("cpu"))
        everyone._end_coalescing(torch.device("cpu"))
        """
    )
    assert launching.pull("left") == [[], []]


@pytest.fixture
def meeting(launching):
    """The same ranks, which have to issue both sides of a first message before the backend sees one."""
    launching.execute(
        "type(everyone).meets_peers = True; x, y, other = torch.ones(1), torch.ones(1), 1 - rank"
    )
    return launching


def test_ranks_that_begin_by_sending_to_each_other_are_told_of_batches(meeting):
    with pytest.raises(DeadlockError, match="batch_isend_irecv"):
        meeting.execute("s = dist.isend(x, other)\ndist.recv(y, other)\ns.wait()")


def test_a_first_message_waits_until_its_other_side_is_there_and_later_ones_do_not(meeting):
    meeting.execute(
        """
        import time
        moments = []  # at which rank 0 has begun to send, and rank 1 begins to receive, by one clock
        for _ in range(2):
            dist.barrier()
            if rank:
                time.sleep(1)
                moments.append(time.perf_counter())
                dist.recv(y, 0)
            else:
                sending = dist.isend(x, 1)
                moments.append(time.perf_counter())
                sending.wait()
        """
    )
    (first, later), (first_received, later_received) = meeting.pull("moments")
    assert first > first_received and later < later_received


@pytest.mark.parametrize("ranks, limit", [(2, "4"), (3, "2"), (8, "1"), (32, "1")])
def test_all_ranks_on_a_gpu_find_room_for_their_kernels_at_once(ranks, limit):
    assert cuda.nccl_defaults(ranks)["NCCL_MAX_CTAS"] == limit


def test_a_rank_with_a_gpu_of_its_own_leaves_nccl_as_it_is(monkeypatch):
    assert "NCCL_MAX_CTAS" not in cuda.nccl_defaults(1)
    assert cuda.nccl_requirements(1, "lo") == {"NCCL_SOCKET_IFNAME": "lo"}


def test_the_first_line_says_what_is_real_where_ranks_share_a_gpu_over_nccl(shared_group, monkeypatch):
    assert magics._what_is_real(shared_group) == ""
    monkeypatch.setattr(Placement, "ranks_per_gpu", 4)
    monkeypatch.setattr(shared_group, "backend", "nccl")
    assert magics._describe(shared_group) == "4 ranks on NCCL, up to 4 on a GPU,"
    assert re.search(
        "errors and hangs are real; its times and bandwidths are not", magics._what_is_real(shared_group)
    )


def test_ranks_on_a_gpu_of_their_own_cannot_be_joined_there_by_others(monkeypatch):
    with fourranks.start(1, "gloo", capacity=2) as group:
        group._conductor.workers._backend = "nccl"
        monkeypatch.setattr(Placement, "ranks_per_gpu", 2)
        with pytest.raises(StartError, match="Start a new world"):
            group.resize(2)


def test_nccl_waits_for_a_rank_that_computes_for_hours(shared_group):
    timeout = "dist.distributed_c10d._get_default_timeout('nccl').total_seconds()"
    assert shared_group.pull(timeout) == [365 * 24 * 3600.0] * 4


def test_a_table_of_ranks_on_gpus_has_their_gpu_and_what_they_hold_of_its_memory():
    statuses = [
        RankStatus(rank, 100 + rank, "cuda:0", "gloo", "idle", 300 * MIB, "NVIDIA H200", rank * 64 * MIB)
        for rank in range(2)
    ]
    head, first, second = repr(StatusTable(statuses)).splitlines()
    assert head.endswith("GPU          GPU memory")
    assert first.endswith("NVIDIA H200  0 MiB") and second.endswith("NVIDIA H200  64 MiB")
    assert second.index("64 MiB") == head.index("GPU memory")
    assert re.search(r"<td[^>]*>NVIDIA H200</td><td[^>]*>64 MiB</td>", StatusTable(statuses)._repr_html_())


def test_a_table_without_gpus_has_no_columns_for_them(shared_group):
    assert "GPU" not in repr(StatusTable(shared_group.status()))
    assert shared_group.device == "cpu"


# --- one GPU, one rank, NCCL -----------------------------------------------------------------------------


@pytest.mark.gpu
def test_one_rank_communicates_by_nccl(one_on_nccl):
    one_on_nccl.execute(
        """
        x = torch.arange(4.0, device=device)
        dist.all_reduce(x)
        y = torch.empty(1, 4, device=device)
        dist.all_gather_single(y, x[None])
        dist.broadcast(y, 0)
        dist.barrier()
        """
    )
    assert one_on_nccl.pull("y.tolist()") == [[[0.0, 1.0, 2.0, 3.0]]]
    assert one_on_nccl.pull("(dist.get_backend(), str(device), torch.cuda.current_device())") == [
        ("nccl", "cuda:0", 0)
    ]


@pytest.mark.gpu
def test_nccl_is_chosen_when_there_is_a_gpu_for_each_rank():
    with fourranks.start(1) as group:
        assert (group.backend, group.device) == ("nccl", "cuda")


@pytest.mark.gpu
def test_nccl_explains_that_it_moves_gpu_tensors_only(one_on_nccl):
    with pytest.raises(RankError, match=r"make them there \(device=device\)"):
        one_on_nccl.execute("dist.all_reduce(torch.ones(1))")


@pytest.mark.gpu
def test_a_rank_on_nccl_can_be_restarted_and_keeps_its_backend(one_on_nccl):
    one_on_nccl.restart()
    one_on_nccl.execute("x = torch.ones(1, device=device); dist.all_reduce(x)")
    assert (one_on_nccl.backend, one_on_nccl.pull("x.item()")) == ("nccl", [1.0])


@pytest.mark.gpu
def test_an_interrupted_kernel_loop_on_nccl_leaves_the_variables(one_on_nccl):
    one_on_nccl.execute("kept = torch.ones(1, device=device)")
    with pytest.raises(FourRanksError):
        one_on_nccl.execute(
            """
            while True:
                dist.all_reduce(kept)
                torch.cuda.synchronize()
            """,
            timeout=2,
        )
    assert one_on_nccl.pull("kept.item()") == [1.0]


# --- one GPU, several ranks, Gloo ------------------------------------------------------------------------


@pytest.mark.gpu
def test_ranks_share_the_gpus_over_gloo(shared_gpu):
    count = zygote.shared().gpus().count
    assert shared_gpu.pull("str(device)") == [f"cuda:{rank % count}" for rank in range(3)]
    assert shared_gpu.pull("torch.cuda.current_device()") == [rank % count for rank in range(3)]
    assert (shared_gpu.backend, shared_gpu.device) == ("gloo", "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call, expected",
    [
        ("dist.all_reduce(x)", [[6, 6, 6]] * 3),
        ("dist.all_reduce(x, dist.ReduceOp.MAX)", [[3, 3, 3]] * 3),
        ("dist.broadcast(x, 1)", [[2, 2, 2]] * 3),
        ("dist.reduce(x, 0); x = x if rank == 0 else x * 0", [[6, 6, 6], [0, 0, 0], [0, 0, 0]]),
        ("o = [torch.empty_like(x) for _ in range(3)]; dist.all_gather(o, x); x = torch.stack(o)[:, 0]",
         [[1, 2, 3]] * 3),
        ("o = torch.empty(9, device=device); dist.all_gather_single(o, x); x = o[::3]", [[1, 2, 3]] * 3),
        ("o = torch.empty(1, device=device); dist.reduce_scatter_single(o, x); x = o.expand(3)",
         [[6, 6, 6]] * 3),
        ("o = torch.empty_like(x); dist.all_to_all_single(o, x); x = o", [[1, 2, 3]] * 3),
        ("o = [torch.empty_like(x) for _ in range(3)] if rank == 0 else None; dist.gather(x, o, 0); "
         "x = torch.stack(o)[:, 0] if rank == 0 else x * 0", [[1, 2, 3], [0, 0, 0], [0, 0, 0]]),
        ("i = [x + n for n in range(3)] if rank == 0 else None; o = torch.empty_like(x); "
         "dist.scatter(o, i, 0); x = o", [[1, 1, 1], [2, 2, 2], [3, 3, 3]]),
    ],
)  # fmt: skip
def test_gloos_collectives_take_gpu_tensors(shared_gpu, call, expected):
    shared_gpu.execute(f"x = torch.full((3,), rank + 1.0, device=device); {call}")
    assert shared_gpu.pull("x.tolist()") == expected
    assert shared_gpu.pull("x.is_cuda") == [True] * 3


@pytest.mark.gpu
def test_messages_with_gpu_tensors_go_by_the_host_over_gloo(shared_gpu):
    shared_gpu.execute(
        """
        x = torch.full((2,), float(rank), device=device)
        left = torch.empty(2, device=device)
        operations = [dist.P2POp(dist.isend, x, (rank + 1) % 3), dist.P2POp(dist.irecv, left, (rank - 1) % 3)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        """
    )
    assert shared_gpu.pull("left.tolist()") == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]
    assert shared_gpu.pull("str(left.device) == str(device)") == [True] * 3


@pytest.mark.gpu
def test_ddp_on_a_shared_gpu_averages_gradients(shared_gpu):
    shared_gpu.execute(
        """
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1, bias=False).to(device)
        ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device])
        ddp(torch.full((1, 4), rank + 1.0, device=device)).sum().backward()
        """
    )
    assert shared_gpu.pull("model.weight.grad.tolist()") == [[[2.0] * 4]] * 3


@pytest.mark.gpu
def test_gpu_tensors_come_to_the_notebook_as_cpu_tensors(shared_gpu):
    shared_gpu.execute("x = torch.full((2,), float(rank), device=device)")
    pulled = shared_gpu.pull("x")

    def on_the_gpu():
        import torch

        return {"x": torch.ones(2, device="cuda")}

    returned = shared_gpu.run(on_the_gpu)
    assert [x.device.type for x in pulled] == [value["x"].device.type for value in returned] == ["cpu"] * 3
    assert [x.tolist() for x in pulled] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


@pytest.mark.gpu
def test_the_status_tells_gpu_and_memory_of_each_rank():
    with fourranks.start(2, "gloo", device="cuda") as group:
        group.execute("if rank == 1: x = torch.zeros(64 * 2**20, dtype=torch.uint8, device=device)")
        first, second = group.status()
        assert first.gpu_bytes == 0 and second.gpu_bytes == 64 * MIB
        assert first.gpu == zygote.shared().gpus().names[0]
        table = repr(StatusTable(group.status()))
        assert "GPU memory" in table and "64 MiB" in table and first.gpu in table
        group.execute("x = None")
        assert [status.gpu_bytes for status in group.status()] == [0, 0]


@pytest.mark.gpu
def test_a_deadlock_of_ranks_that_share_a_gpu_costs_no_variable():
    with fourranks.start(2, "gloo", device="cuda") as group:
        group.execute("x = torch.full((1,), rank + 1.0, device=device)")
        with pytest.raises(DeadlockError):
            group.execute("if rank == 0: dist.all_reduce(x)")
        group.execute("dist.all_reduce(x)")
        assert group.pull("x.item()") == [3.0, 3.0]


@pytest.mark.gpu
def test_a_full_gpu_is_explained_and_the_rank_goes_on(shared_gpu):
    with pytest.raises(RankError, match="The GPU's memory is full"):
        shared_gpu.execute("torch.empty(2**50, dtype=torch.uint8, device=device)")
    assert shared_gpu.pull("torch.ones(2, device=device).sum().item()") == [2.0] * 3


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_failed_kernel_spoils_cuda_until_a_restart_which_the_error_asks_for(backend):
    with fourranks.start(1, backend, device="cuda") as group:
        failing = "torch.zeros(2, device=device)[torch.tensor([7], device=device)]; torch.cuda.synchronize()"
        for source in (failing, "torch.ones(1, device=device).item()"):
            with pytest.raises(RankError, match="(?s)device-side assert.*%ranks restart"):
                group.execute(source)
        group.execute("kept = 1")  # the rank itself lives
        group.restart()
        group.execute("x = torch.ones(1, device=device); dist.all_reduce(x)")
        assert group.pull("x.item()") == [1.0]


@pytest.mark.gpu
def test_the_zygote_never_touches_cuda_so_worlds_can_follow_each_other():
    for backend, world_size in (("nccl", 1), ("gloo", 2), ("nccl", 1)):
        with fourranks.start(world_size, backend, device="cuda") as group:
            assert group.pull("torch.ones(1, device=device).item()") == [1.0] * world_size


@pytest.mark.gpu
def test_gpus_hidden_after_the_zygote_has_started_are_hidden_from_the_next_world(monkeypatch):
    assert zygote.shared().gpus().count
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(StartError, match="torch can use no GPU here.*CUDA_VISIBLE_DEVICES is ''"):
        fourranks.start(1, "nccl")
    with fourranks.start(2) as group:
        assert (group.backend, group.device) == ("gloo", "cpu")
        assert group.pull("torch.cuda.device_count()") == [0, 0]


# --- several GPUs ----------------------------------------------------------------------------------------


@pytest.fixture
def two_on_nccl():
    with fourranks.start(2, "nccl") as group:
        yield group


@pytest.mark.gpu(2)
def test_each_rank_has_its_own_gpu_on_nccl(two_on_nccl):
    two_on_nccl.execute("x = torch.full((1,), rank + 1.0, device=device); dist.all_reduce(x)")
    assert two_on_nccl.pull("(str(x.device), x.item())") == [("cuda:0", 3.0), ("cuda:1", 3.0)]


@pytest.mark.gpu(2)
def test_messages_go_by_nccl(two_on_nccl):
    two_on_nccl.execute(
        """
        x = torch.full((1,), float(rank), device=device)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        """
    )
    assert two_on_nccl.pull("x.item()") == [0.0, 0.0]


@pytest.mark.gpu(2)
def test_a_rank_that_skips_a_collective_of_nccl_ends_the_cell_and_costs_no_variable(two_on_nccl):
    two_on_nccl.execute("kept = torch.full((1,), rank + 1.0, device=device); dist.all_reduce(kept)")
    with pytest.raises(FourRanksError):
        two_on_nccl.execute(
            """
            x = torch.ones(1, device=device)
            if rank == 0:
                dist.all_reduce(x)
                torch.cuda.synchronize()
            """,
            timeout=20,
        )
    two_on_nccl.execute("y = torch.ones(1, device=device); dist.all_reduce(y)")
    assert two_on_nccl.pull("(kept.item(), y.item())") == [(3.0, 2.0)] * 2


@pytest.mark.gpu(2)
def test_one_of_two_gpus_made_visible_is_the_only_one(monkeypatch):
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible.split(",")[1] if visible else "1")
    with fourranks.start(2, device="cuda") as group:
        assert (group.backend, group.pull("str(device)")) == ("gloo", ["cuda:0", "cuda:0"])
        assert group.pull("torch.cuda.device_count()") == [1, 1]
