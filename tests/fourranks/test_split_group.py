"""Groups that torch makes in C++ by splitting another, as it does for meshes on GPUs: they are recorded, too.

Torch splits groups on NCCL. Of NCCL's part a stand-in is done on Gloo here; the rest is torch's own.
"""

from __future__ import annotations

import pytest

import fourranks
from fourranks.errors import DeadlockError

ON_A_GPU = """
class Splitting:  # a process group of torch's own, whose backend is NCCL as far as splits are concerned
    def __init__(self, group):
        self.group = group

    def __getattr__(self, name):
        return getattr(self.group, name)

    def split_group(self, ranks, timeout, opts, group_name, group_desc, device_types):
        self.group.barrier().wait()
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
kept = rank
"""
SPLIT = "half = dist.split_group(split_ranks=[[0, 1], [2, 3]], pg_options=object(), group_desc='halves')\n"


@pytest.fixture
def world():
    with fourranks.start(4, "gloo") as group:
        group.execute(ON_A_GPU)
        yield group


def test_its_calls_are_recorded_and_their_results_are_those_of_torch(world):
    with world.trace() as trace:
        world.execute(f"{SPLIT}x = torch.tensor([float(rank)])\ndist.all_reduce(x, group=half)")
    assert world.pull("x.item()") == [1.0, 1.0, 5.0, 5.0]
    assert world.pull("(dist.get_backend(half), half.group_desc)") == [("gloo", "halves")] * 4
    for calls in trace.calls:
        assert [(call.op, call.line) for call in calls] == [("all_reduce", 3)]


def test_a_rank_outside_of_the_new_groups_gets_no_group(world):
    world.execute("pair = dist.split_group(split_ranks=[[0, 2]], pg_options=object(), group_desc='pair')")
    assert world.pull("isinstance(pair, dist.ProcessGroup)") == [True, False, True, False]


def test_a_deadlock_in_it_is_explained_and_costs_no_variable(world):
    world.execute(SPLIT)
    with pytest.raises(DeadlockError, match=r"(?s)Rank 2 waits in barrier.*for rank 3") as error:
        world.execute("if rank == 2:\n    dist.barrier(group=half)")
    assert "line 2" in str(error.value)
    assert world.pull("kept") == [0, 1, 2, 3]


def test_a_rank_that_others_wait_for_in_a_split_is_named(world):
    with pytest.raises(DeadlockError, match="(?s)split_group.*for rank 2"):
        world.execute(f"if rank != 2:\n    {SPLIT}")
    assert world.pull("kept") == [0, 1, 2, 3]
