"""Groups that torch makes in C++ by splitting another, as it does for meshes on GPUs, are recorded, too."""

from __future__ import annotations

import pytest
import torch.distributed as dist

import fourranks
from fourranks.errors import DeadlockError

GLOO_SPLITS = hasattr(dist, "gather_single")  # since torch 2.15
# Before, torch splits groups on NCCL only; a stand-in does NCCL's part on Gloo, and the rest is torch's own.
STAND_IN = """
class Splitting:
    def __init__(self, group):
        self.group = group

    def __getattr__(self, name):
        return getattr(self.group, name)

    def split_group(self, ranks, timeout, opts, group_name, group_desc, device_types):
        if rank not in ranks:
            return None
        types = dist.ProcessGroup.BackendType
        store = dist.PrefixStore(group_name, dist.group.WORLD.get_group_store())
        made = type(self.group)(store, ranks.index(rank), len(ranks))
        backend = dist.ProcessGroupGloo(store, ranks.index(rank), len(ranks), timeout)
        made._register_backend(torch.device("cpu"), types.GLOO, backend)
        made._set_default_backend(types.GLOO)
        made._set_group_name(group_name)
        made._set_group_desc(group_desc)
        return made

dist.group.WORLD.inner = Splitting(dist.group.WORLD.inner)
dist.group.WORLD.bound_device_id = torch.device("cpu:0")
torch.accelerator.is_available = lambda: True
torch.accelerator.current_accelerator = lambda: torch.device("cpu")
"""
OPTIONS = "group_desc='part'" if GLOO_SPLITS else "group_desc='part', pg_options=object()"
SPLIT = f"half = dist.split_group(split_ranks=[[0, 1], [2, 3]], {OPTIONS})\n"


@pytest.fixture
def world():
    with fourranks.start(4, "gloo") as group:
        group.execute(f"{'' if GLOO_SPLITS else STAND_IN}kept = rank")
        yield group


def test_its_calls_are_recorded_and_their_results_are_those_of_torch(world):
    with world.trace() as trace:
        world.execute(f"{SPLIT}x = torch.tensor([float(rank)])\ndist.all_reduce(x, group=half)")
    assert world.pull("x.item()") == [1.0, 1.0, 5.0, 5.0]
    assert world.pull("(dist.get_backend(half), half.group_desc)") == [("gloo", "part")] * 4
    for rank, calls in enumerate(trace.calls):
        assert [(call.op, call.line, call.ranks) for call in calls] == [
            ("all_reduce", 3, (0, 1) if rank < 2 else (2, 3))
        ]


def test_a_rank_outside_of_the_new_groups_gets_no_group(world):
    world.execute(f"pair = dist.split_group(split_ranks=[[0, 2]], {OPTIONS})")
    assert world.pull("isinstance(pair, dist.ProcessGroup)") == [True, False, True, False]


def test_a_deadlock_in_it_is_explained_and_costs_no_variable(world):
    world.execute(SPLIT)
    with pytest.raises(DeadlockError, match=r"(?s)Rank 2 waits in barrier.*line 2.*for rank 3"):
        world.execute("if rank == 2:\n    dist.barrier(group=half)")
    assert world.pull("kept") == [0, 1, 2, 3]


def test_a_rank_that_others_wait_for_in_a_split_is_named(world):
    with pytest.raises(DeadlockError, match="Rank 2 skipped the split_group inside `if rank != 2:`"):
        world.execute(f"if rank != 2:\n    {SPLIT}")
    world.execute("after = torch.ones(1)\ndist.all_reduce(after)")
    assert world.pull("(kept, after.item())") == [(rank, 4.0) for rank in range(4)]


@pytest.mark.skipif(not GLOO_SPLITS, reason="Gloo splits groups since torch 2.15")
def test_ranks_that_have_made_different_numbers_of_groups_are_told_so(world):
    with pytest.raises(DeadlockError, match="rank 0 has 2,\nrank 1 has 1"):
        world.execute(
            f"if rank == 0: dist.new_group([0], use_local_synchronization=True)\n{SPLIT}", timeout=60
        )
    assert world.pull("kept") == [0, 1, 2, 3]
