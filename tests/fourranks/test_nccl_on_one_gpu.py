"""Four ranks on NCCL that share one GPU: a reader with one GPU must see NCCL's own behaviour.

They need a GPU and NCCL 2.30. The rules that choose the backend are tested in
`test_hardware`, what the ranks are told in `test_cuda`; those need no GPU.
"""

import threading
import time

import pytest
from IPython.core.interactiveshell import InteractiveShell

import fourranks
from fourranks import zygote
from fourranks.doctor import worlds
from fourranks.doctor.report import Severity
from fourranks.errors import CellInterrupted, CellTimeout, DeadlockError, RankError
from fourranks.hardware import dotted
from fourranks.placement import SHARING_NCCL

pytestmark = pytest.mark.gpu
SUM = 10.0  # of 1 to 4


@pytest.fixture(scope="module")
def one_gpu():
    """Have ranks see one GPU, however many there are."""
    gpus = zygote.shared().gpus()
    if gpus.nccl < SHARING_NCCL:
        pytest.skip(f"needs NCCL {dotted(SHARING_NCCL)}; torch has loaded {dotted(gpus.nccl) or 'none'}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CUDA_VISIBLE_DEVICES", "0")
        yield


@pytest.fixture
def four(one_gpu):
    with fourranks.start(4, "nccl") as group:
        group.execute("kept = torch.full((1,), rank + 1.0, device=device); dist.all_reduce(kept)")
        yield group


def assert_usable(group):
    """The variables of before are there, and the ranks communicate."""
    group.execute("again = torch.full((1,), rank + 1.0, device=device); dist.all_reduce(again)")
    assert group.pull("(kept.item(), again.item())") == [(SUM, SUM)] * 4


def test_four_ranks_communicate_on_one_gpu(four):
    assert (four.backend, four.ranks_per_gpu) == ("nccl", 4)
    assert four.pull("(dist.get_backend(), str(kept.device), kept.item())") == [("nccl", "cuda:0", SUM)] * 4


@pytest.mark.parametrize(
    "call, expected",
    [
        ("dist.broadcast(x, 1)", [[2, 2, 2, 2]] * 4),
        ("dist.reduce(x, 0); x = x if rank == 0 else x * 0", [[10] * 4, [0] * 4, [0] * 4, [0] * 4]),
        ("o = torch.empty(16, device=device); dist.all_gather_single(o, x); x = o[::4]", [[1, 2, 3, 4]] * 4),
        ("o = torch.empty(1, device=device); dist.reduce_scatter_single(o, x); x = o.expand(4)",
         [[10] * 4] * 4),
        ("o = torch.empty_like(x); dist.all_to_all_single(o, x); x = o", [[1, 2, 3, 4]] * 4),
        ("w = dist.all_reduce(x, async_op=True); w.wait()", [[10] * 4] * 4),
    ],
)  # fmt: skip
def test_collectives_give_what_they_give_elsewhere(four, call, expected):
    four.execute(f"x = torch.full((4,), rank + 1.0, device=device); {call}")
    assert four.pull("x.tolist()") == expected


def test_messages_go_round_the_ranks(four):
    four.execute(
        """
        x, left = torch.full((2,), float(rank), device=device), torch.empty(2, device=device)
        operations = [dist.P2POp(dist.isend, x, (rank + 1) % 4), dist.P2POp(dist.irecv, left, (rank - 1) % 4)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        """
    )
    assert four.pull("left[0].item()") == [3.0, 0.0, 1.0, 2.0]


def test_calls_are_launched_and_the_ranks_go_on(four):
    four.execute(
        """
        import time
        x = torch.ones(2**24, device=device)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            dist.all_reduce(x)
        launched = time.perf_counter() - began
        torch.cuda.synchronize()
        done = time.perf_counter() - began
        """
    )
    assert all(launched < done for launched, done in four.pull("(launched, done)"))


@pytest.mark.parametrize(
    "source",
    [
        "x = torch.ones(1, device=device); dist.all_reduce(x) if rank else None",
        "x = torch.ones(1, device=device)\nif rank:\n    dist.all_reduce(x)\n    torch.cuda.synchronize()",
        "x = torch.ones(1, device=device)\nif rank:\n    dist.all_reduce(x)\n    x.item()",
        "x = torch.ones(1, device=device); dist.all_reduce(x) if rank else dist.broadcast(x, 0)",
        "x = torch.ones(1, device=device); dist.recv(x, (rank + 1) % 4)",
    ],
    ids=["skipped", "skipped, synchronized", "skipped, read", "different calls", "all receive"],
)
def test_a_deadlock_is_explained_and_costs_no_variable(four, source):
    with pytest.raises(DeadlockError):
        four.execute(source, timeout=60)
    assert four.pids and four.status()[0].state == "idle"
    assert_usable(four)


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(x, group=pair) if rank == 0 else None",
        "dist.send(x, 1) if rank == 0 else None",
    ],
    ids=["a collective", "a message"],
)
def test_a_deadlock_in_the_first_call_of_its_kind_costs_no_variable(four, call):
    with pytest.raises(DeadlockError):
        four.execute(
            f"""
            x, pair = torch.ones(1, device=device), dist.new_group([0, 1])
            {call}
            torch.cuda.synchronize()
            """,
            timeout=60,
        )
    assert_usable(four)


def test_a_mesh_whose_groups_torch_splits_is_recorded_and_a_deadlock_in_it_costs_no_variable(four):
    four.execute(
        """
        from torch.distributed.device_mesh import init_device_mesh
        dist.destroy_process_group()
        dist.init_process_group("nccl", device_id=device)
        mesh, x = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp")), torch.ones(1, device=device)
        dist.all_reduce(x, group=mesh["tp"].get_group())
        """
    )
    assert four.pull("x.item()") == [2.0] * 4
    with pytest.raises(DeadlockError, match="Rank 3 waits in all_reduce"):
        four.execute("if rank == 3: dist.all_reduce(x, group=mesh['tp'].get_group())", timeout=60)
    assert_usable(four)


def test_messages_one_after_the_other_are_a_deadlock_and_a_batch_of_them_is_none(four):
    four.execute("x, other = torch.full((2**23,), float(rank), device=device), rank ^ 1")
    with pytest.raises(DeadlockError, match="batch_isend_irecv"):
        four.execute(
            """
            y = torch.empty_like(x)
            sending = dist.isend(x, other)
            dist.recv(y, other)
            sending.wait()
            """,
            timeout=60,
        )
    four.execute(
        """
        both = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, y, other)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        """
    )
    assert four.pull("y[-1].item()") == [1.0, 0.0, 3.0, 2.0]
    assert_usable(four)


@pytest.mark.parametrize("only", ["isend", "irecv"])
def test_a_batch_of_which_one_message_is_not_answered_is_a_deadlock(four, only):
    four.execute("x, y = torch.ones(2**23, device=device), torch.empty(2**23, device=device)")
    with pytest.raises(DeadlockError, match=f"{only[1:]} "):
        four.execute(
            f"""
            if rank < 2:
                both = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
                both = both if rank == 0 else [each for each in both if each.op is dist.{only}]
                for work in dist.batch_isend_irecv(both):
                    work.wait()
            """,
            timeout=60,
        )
    assert_usable(four)


def test_a_batch_that_an_exception_has_left_costs_no_variable(four):
    with pytest.raises(RankError, match="device type cpu"):
        four.execute(
            """
            x, y = torch.ones(4, device=device), torch.empty(4)
            dist.batch_isend_irecv([dist.P2POp(dist.isend, x, rank ^ 1), dist.P2POp(dist.irecv, y, rank ^ 1)])
            """
        )
    assert_usable(four)


def test_a_batch_is_waited_for_and_timed_as_a_whole(four):
    with four.trace() as trace:
        four.execute(
            """
            x, y = torch.ones(4, device=device), torch.empty(4, device=device)
            both = [dist.P2POp(dist.isend, x, rank ^ 1), dist.P2POp(dist.irecv, y, rank ^ 1)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            """
        )
    calls = [call for ranks in trace.calls for call in ranks]
    assert [call.op for call in calls] == ["send", "recv"] * 4
    assert all(call.end is not None for call in calls)


def test_a_call_that_torch_waits_for_needs_no_wait_of_the_readers(four):
    with four.trace() as trace:
        four.execute("dist.all_reduce(torch.ones(1, device=device))")
    assert all(call.end is not None and not call.asynchronous for (call,) in trace.calls)


def test_gradients_are_averaged_by_ddp_whose_calls_come_from_autograds_own_threads(four):
    with four.trace() as trace:
        four.execute(
            """
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1, bias=False).to(device)
            ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device])
            loss = ddp(torch.full((1, 4), rank + 1.0, device=device)).sum()
            loss.backward()
            """
        )
    assert four.pull("model.weight.grad.tolist()") == [[[2.5] * 4]] * 4
    assert {call.line for call in trace.calls[0] if call.op == "all_reduce"} == {5}


def test_a_backward_pass_that_one_rank_leaves_out_is_a_deadlock_that_costs_no_variable(four):
    with pytest.raises(DeadlockError, match="Rank 2 finished the cell"):
        four.execute(
            """
            model = torch.nn.Linear(4, 1, bias=False).to(device)
            ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device])
            loss = ddp(torch.full((1, 4), rank + 1.0, device=device)).sum()
            if rank != 2:
                loss.backward()
            """,
            timeout=60,
        )
    assert_usable(four)


def test_a_deadlock_behind_calls_of_several_groups_costs_no_variable(four):
    four.execute(
        """
        pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
        x = torch.ones(4, device=device)
        dist.all_reduce(x, group=pairs[rank // 2])
        """
    )
    with pytest.raises(DeadlockError):
        four.execute("dist.all_reduce(x) if rank != 3 else None", timeout=60)
    assert_usable(four)


def test_an_interrupted_collective_costs_no_variable(four):
    threading.Timer(2.0, four.interrupt).start()
    with pytest.raises((CellInterrupted, DeadlockError)):
        four.execute(
            """
            import time
            if rank == 3:
                time.sleep(60)
            x = torch.ones(1, device=device)
            dist.all_reduce(x)
            torch.cuda.synchronize()
            """,
            timeout=60,
        )
    assert_usable(four)


def test_a_cell_out_of_time_costs_no_variable(four):
    with pytest.raises(CellTimeout):
        four.execute("while True: dist.all_reduce(kept * 0); torch.cuda.synchronize()", timeout=2)
    assert_usable(four)


def test_an_error_of_one_rank_is_told_and_the_others_are_freed(four):
    with pytest.raises(RankError, match="ZeroDivisionError"):
        four.execute(
            """
            x = torch.ones(1, device=device)
            1 / 0 if rank == 2 else dist.all_reduce(x)
            torch.cuda.synchronize()
            """,
            timeout=60,
        )
    assert_usable(four)


def test_a_tensor_on_the_cpu_is_refused_with_what_to_do(four):
    with pytest.raises(RankError, match=r"make them there \(device=device\)"):
        four.execute("dist.all_reduce(torch.ones(1))")
    assert_usable(four)


def test_a_trace_has_the_time_of_each_call_on_the_gpu(four):
    with four.trace() as trace:
        four.execute("x = torch.ones(2**20, device=device); dist.all_reduce(x); torch.cuda.synchronize()")
    (operation,) = trace.operations
    assert operation.op == "all_reduce"
    calls = [call for ranks in trace.calls for call in ranks]
    assert len(calls) == 4 and all(call.device_seconds and call.device_seconds > 0 for call in calls)
    assert "busbw" in str(trace.table())
    assert trace.timeline() is not None


def test_steps_show_what_a_variable_held_round_by_round(four):
    with four.trace(values="x") as trace:
        four.execute(
            """
            x, left = torch.full((1,), float(rank), device=device), torch.empty(1, device=device)
            for _ in range(2):
                to, source = (rank + 1) % 4, (rank - 1) % 4
                operations = [dist.P2POp(dist.isend, x, to), dist.P2POp(dist.irecv, left, source)]
                for work in dist.batch_isend_irecv(operations):
                    work.wait()
                x = left.clone()
            """
        )
    assert trace.steps() is not None
    assert four.pull("x.item()") == [2.0, 3.0, 0.0, 1.0]


def test_the_dashboard_sees_who_waits_while_a_cell_runs(four):
    def run() -> None:
        four.execute(
            """
            import time
            if rank == 0:
                time.sleep(3)
            x = torch.ones(1, device=device)
            dist.all_reduce(x)
            """
        )

    thread = threading.Thread(target=run)
    thread.start()
    seen = []
    while thread.is_alive():
        seen.append([activity.waits_in for activity in four.snapshot()])
        time.sleep(0.1)
    thread.join()
    assert any(call is not None and call.op == "all_reduce" for moment in seen for call in moment[1:])
    assert_usable(four)


def test_the_first_line_says_what_is_real_and_what_is_not(one_gpu, capsys):
    shell = InteractiveShell.instance()
    for cell in ("%load_ext fourranks", "%ranks start -n 4 --backend nccl", "%ranks stop"):
        shell.run_cell(cell)
    first = capsys.readouterr().out
    assert "4 ranks on NCCL, up to 4 on a GPU, are ready" in first
    assert "its times and bandwidths are not" in first


def test_the_doctor_measures_what_taking_turns_costs(one_gpu):
    finding = worlds.nccl_sharing(seconds=0.5)
    assert finding.severity is Severity.OK, finding.found
    assert "4 ranks share 1 GPU: an all-reduce of 1024 bytes takes" in finding.found
