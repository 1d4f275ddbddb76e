"""What a reader is told when ranks wait forever: real mistakes on real ranks, each explained."""

from __future__ import annotations

import re
import textwrap

import pytest

import fourranks

BEGIN = "x = torch.ones(2)\n"  # line 1 of each cell


@pytest.fixture(scope="module")
def group():
    with fourranks.start(4) as group:
        group.execute("kept = rank")
        yield group
        assert group.pull("kept") == [0, 1, 2, 3]  # all these mistakes have cost no variable


def explanation(group, cell, ranks=None):
    with pytest.raises(fourranks.DeadlockError) as caught:
        group.execute(BEGIN + cell, ranks)
    assert "All ranks are free again and keep their variables." in str(caught.value)
    group.execute("dist.all_reduce(torch.ones(1))")
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        pytest.param(
            "for step in range(10 - (rank == 2)):\n    dist.all_reduce(x)",
            "Rank 2 left the loop `for step in range(10 - (rank == 2)):` (line 2) one iteration early, "
            "or skipped it: rank 0 is in its all_reduce number 10 there, rank 2 called 9.",
            id="a loop left early",
        ),
        pytest.param(
            "step = 0\nwhile step < 3 + (rank < 2):\n    step += 1\n    dist.barrier()\ndist.all_reduce(x)",
            "Ranks 2-3 left the loop `while step < 3 + (rank < 2):` (line 3) one iteration early",
            id="a loop left early, and another collective behind it",
        ),
        pytest.param(
            "if rank != 0:\n    dist.all_reduce(x)",
            "Rank 0 skipped the all_reduce inside `if rank != 0:` (line 2).",
            id="a branch",
        ),
        pytest.param(
            "if rank != 0:\n    dist.all_reduce(x)\ndist.broadcast(x, 0)",
            "Rank 0 skipped the all_reduce inside `if rank != 0:` (line 2).",
            id="a branch, and another collective behind it",
        ),
        pytest.param(
            "if rank == 3:\n    pass\nelse:\n    dist.barrier()",
            "Rank 3 skipped the barrier inside `else of if rank == 3:` (line 2).",
            id="the other branch",
        ),
        pytest.param(
            "def step():\n    if rank == 3:\n        return\n    dist.all_reduce(x)\nstep()",
            "Rank 3 never came to this line of step: look for an early return in front of it",
            id="an early return",
        ),
        pytest.param(
            "dist.all_reduce(x) if rank else None\ntorch.ones(3)",
            "Rank 0 finished the cell.",
            id="no block to name",
        ),
        pytest.param(
            "dist.send(x, (rank + 1) % 4)\ndist.recv(x, (rank - 1) % 4)",
            "A send/send cycle (0 → 1 → 2 → 3 → 0): a blocking send waits until its receiver asks. Use isend",
            id="all send first",
        ),
        pytest.param(
            "dist.recv(x, (rank - 1) % 4)\ndist.send(x, (rank + 1) % 4)",
            "A recv/recv cycle (0 → 3 → 2 → 1 → 0): all receive first, so nobody sends. Use irecv",
            id="all receive first",
        ),
        pytest.param(
            "dist.isend(x, (rank + 1) % 4).wait()\ndist.recv(x, (rank - 1) % 4)",
            "every rank waits too early. Issue the recv first, then wait for both handles.",
            id="all wait for their isend",
        ),
        pytest.param(
            "if rank == 0: dist.send(x, 1, tag=7)\nif rank == 1: dist.recv(x, 0)",
            "Rank 1 asks for a message with tag 0, and rank 0's send has tag 7: both sides must give",
            id="another tag",
        ),
        pytest.param(
            "if rank == 0: dist.send(x, 2)\nif rank == 1: dist.recv(x, 0)",
            "Rank 0 sends to rank 2, which does not answer, and rank 1 waits for it: look at the dst on rank",
            id="another receiver",
        ),
        pytest.param("if rank == 0: dist.recv(x, 1)", "Every send needs a matching recv", id="nobody sends"),
        pytest.param(
            "dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None",
            "16 bytes are sent, and there is room for 8.",
            id="too small a buffer",
        ),
        pytest.param(
            "dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(x) if rank == 1 else None",
            "16 bytes are sent, and there is room for 8.",
            id="too small a buffer for any sender",
        ),
        pytest.param(
            "dist.broadcast(x, src=rank)",
            "Each rank names itself: the src or dst of broadcast is one rank, and all ranks name the same.",
            id="src=rank",
        ),
        pytest.param(
            "dist.broadcast(x, src=rank // 3)",
            "rank 3 disagree on the src or dst: in one broadcast all ranks must give the same.",
            id="another root",
        ),
        pytest.param(
            "dist.all_reduce(torch.ones(2 + rank // 3))",
            "Rank 0 and rank 3 disagree on the shape: in one all_reduce all ranks must give the same.",
            id="another shape",
        ),
        pytest.param(
            "dist.all_reduce(x.double() if rank == 1 else x)",
            "Rank 0 and rank 1 disagree on the dtype: in one all_reduce all ranks must give the same.",
            id="another dtype",
        ),
        pytest.param(
            "dist.all_reduce(x, dist.ReduceOp.MAX if rank == 3 else dist.ReduceOp.SUM)",
            "Rank 0 and rank 3 disagree on the reduce op: in one all_reduce all ranks must give the same.",
            id="another reduce op",
        ),
        pytest.param(
            "chunks = [torch.ones(2, dtype=torch.int64 if rank == 1 else None) for _ in range(4)]\n"
            "dist.reduce_scatter(torch.ones(2, dtype=chunks[0].dtype), chunks)",
            "Rank 0 and rank 1 disagree on the dtype: in one reduce_scatter all ranks must give the same.",
            id="another dtype in a list",
        ),
        pytest.param(
            "given = torch.ones(4, dtype=torch.int64 if rank == 1 else None)\n"
            "dist.all_to_all_single(torch.empty_like(given), given)",
            "Rank 0 and rank 1 disagree on the dtype: in one all_to_all_single all ranks must give the same.",
            id="another dtype in an all-to-all",
        ),
        pytest.param(
            "sizes = [1 + (rank == 2 and other == 0) for other in range(4)]\n"
            "dist.all_to_all_single(torch.empty(4), torch.ones(sum(sizes)), [1] * 4, sizes)",
            "What a rank gives to another in all_to_all_single must be as large as what that one takes",
            id="a chunk that does not fit",
        ),
        pytest.param(
            "dist.barrier() if rank == 1 else dist.all_reduce(x)",
            "All ranks of a group must call the same collectives in the same order.",
            id="another collective",
        ),
        pytest.param(
            "one, two = dist.new_group([0, 1]), dist.new_group([0, 1])\n"
            "for group in ([one, two] if rank else [two, one]):\n"
            "    if rank < 2: dist.all_reduce(x, group=group)",
            "Ranks that share several groups must use them in the same order.",
            id="two groups in another order",
        ),
        pytest.param(
            "if rank != 1:\n    pair = dist.new_group([0, 1])\ndist.barrier()",
            "Every rank must call new_group, with the same members and in the same order: also the ranks",
            id="a rank that does not call new_group",
        ),
        pytest.param(
            "pair = dist.new_group([0, 2 - rank % 2])",
            "Every rank must call new_group, with the same members and in the same order",
            id="groups with other members",
        ),
        pytest.param(
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
            "if rank != 3:\n    model(x).sum().backward()",
            "model(x).sum().backward()), for rank",
            id="a backward pass of DDP without one rank",
        ),
        pytest.param(
            "if rank:\n    dist.monitored_barrier()",
            "Rank 0 skipped the monitored_barrier inside `if rank:`",
            id="a monitored barrier",
        ),
    ],
)
def test_the_likely_mistake_is_named(group, cell, told):
    assert told in explanation(group, cell)


@pytest.mark.parametrize(
    "cell",
    [
        "if rank == 0: dist.send(x, 1)\nif rank == 1: dist.recv(x); dist.recv(x, 0)",
        "if rank == 0: dist.send(x, 1)\nif rank == 1: dist.recv(x, 0); dist.recv(x)",
    ],
)
def test_a_message_that_was_received_is_not_expected_again(group, cell):
    assert "Rank 1 waits in recv from" in explanation(group, cell)


def test_ranks_that_were_not_asked_to_run_the_cell_are_named(group):
    told = explanation(group, "dist.all_reduce(x)", ranks=[0, 1])
    assert "Ranks 2-3 took no part in this cell." in told
    assert "The cell ran without ranks 2-3. Run it on all ranks" in told


def test_a_call_among_some_ranks_says_so(group):
    told = explanation(group, "pair = dist.new_group([1, 2])\nif rank == 1: dist.all_reduce(x, group=pair)")
    assert "Rank 1 waits in all_reduce among ranks 1-2 (" in told and "), for rank 2." in told


def test_a_line_of_a_function_from_an_earlier_cell_is_shown(group):
    group.execute("def meet():\n    dist.barrier()")
    assert "line 2: dist.barrier()" in explanation(group, "if rank: meet()")


def test_a_new_group_that_a_rank_left_out_is_found_in_the_one_that_it_harms_cells_later(group):
    group.execute("if rank != 2: pair = dist.new_group([0, 1])\nfor _ in range(300): dist.barrier()")
    told = explanation(group, "pair = dist.new_group([0, 2])")
    assert "Ranks 0-1,3 called new_group [ranks 0, 1] (Cell In[1], line 1: if rank != 2" in told
    assert "Rank 2 waits in new_group [ranks 0, 2]" in told


def test_new_group_keeps_no_order_with_collectives(group):
    cell = """
    if rank == 0:
        work, pair = dist.all_reduce(x, async_op=True), dist.new_group([0, 1])
    else:
        pair, work = dist.new_group([0, 1]), dist.all_reduce(x, async_op=True)
    work.wait()
    """
    group.execute(BEGIN + textwrap.dedent(cell))


def test_a_wait_with_a_limit_is_left_to_its_limit(group):
    cell = "from datetime import timedelta\nwork = dist.irecv(x, 1 - rank)\nwork.wait(timedelta(seconds=1))"
    with pytest.raises(fourranks.RankError, match="RuntimeError"):
        group.execute(BEGIN + cell, ranks=[0, 1])
    group.execute("dist.barrier()")


def test_a_monitored_barrier_with_a_limit_names_the_rank_itself_and_counts_for_all(group):
    cell = "from datetime import timedelta\nlimit = timedelta(seconds=0.5)\n"
    with pytest.raises(fourranks.RankError, match="Rank 1 failed to pass monitoredBarrier"):
        group.execute(cell + "if rank != 1: dist.monitored_barrier(timeout=limit)")
    group.execute(cell + "dist.monitored_barrier(timeout=10 * limit)\ndist.all_reduce(torch.ones(1))")


def test_a_handle_that_nobody_waits_for_is_told(group):
    late = "import time\nif rank == 3: time.sleep(0.3)\n"
    shown = str(group.execute(BEGIN + late + "dist.all_reduce(x, async_op=True)\ndist.barrier()"))
    told = r"\[0-[23]\] Nobody waited for all_reduce \(Cell In\[1\], line 4: dist.all_reduce"
    assert re.search(told, shown)


@pytest.mark.parametrize(
    "cell",
    [
        "work = dist.all_reduce(x, async_op=True)\nwork.wait()",
        "dist.all_reduce(x, async_op=True).wait()",
        "for work in [dist.isend(x, (rank + 1) % 4), dist.irecv(x, (rank - 1) % 4)]: work.wait()",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\nmodel(x).sum().backward()",
    ],
)
def test_no_warning_is_given_where_the_code_waits(group, cell):
    assert "Nobody waited" not in str(group.execute(BEGIN + cell))


def test_receives_from_any_source_take_messages_of_any_size_that_fits(group):
    cell = """
    import time
    if rank == 1:
        small, large = torch.zeros(1), torch.zeros(9)
        dist.recv(small)  # from rank 0
        dist.recv(large, 2), dist.recv(large)  # both from rank 2
        dist.barrier()
        dist.recv(small)  # from rank 0
    elif rank == 2:
        time.sleep(0.2)
        first = dist.isend(torch.ones(9), 1)
        dist.send(torch.ones(9), 1), first.wait()
        dist.barrier()
    else:
        if rank == 0: dist.send(torch.ones(1), 1)
        dist.barrier()
        if rank == 0: dist.send(torch.ones(1), 1)
    """
    for _ in range(3):
        group.execute(textwrap.dedent(cell))
