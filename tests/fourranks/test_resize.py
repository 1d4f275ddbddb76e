"""A world takes in more ranks, or leaves some in reserve, and each rank keeps its variables."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

import fourranks
from fourranks import DeadlockError, FourRanksError, StartError

SUM = "total = torch.ones(1); dist.all_reduce(total)"


def reserved(group, world_size):
    """Start ranks ahead; return their processes, once they are there."""
    group.reserve(world_size)
    children, deadline = [], time.monotonic() + 10
    while len(children) < world_size - group.world_size and time.monotonic() < deadline:
        siblings = psutil.Process(group.pids[0]).parent().children()
        children = [child for child in siblings if child.pid not in group.pids]
    return children


@pytest.fixture
def group():
    with fourranks.start(2, "gloo", capacity=5) as group:
        group.execute("kept = rank")
        yield group


def test_a_world_grows_and_ranks_keep_their_variables(group):
    group.resize(5)
    group.execute(SUM)
    assert group.world_size == len(group.pids) == len(group.status()) == 5
    assert group.pull("total.item(), world_size, dist.get_world_size()") == [(5.0, 5, 5)] * 5
    assert group.pull("kept", ranks=[0, 1]) == [0, 1]
    group.execute("import os")
    assert group.pull("os.environ['WORLD_SIZE']") == ["5"] * 5


def test_ranks_in_reserve_keep_their_variables_and_come_back(group):
    group.resize(4)
    group.execute("kept = 10 * rank")
    group.resize(1)
    group.execute(SUM)
    assert group.pull("total.item(), world_size, kept") == [(1.0, 1, 0)]
    group.resize(4)
    group.execute(SUM)
    assert group.pull("total.item(), world_size, kept") == [(4.0, 4, 10 * rank) for rank in range(4)]


def test_ranks_that_were_started_ahead_join_when_the_world_grows(group):
    ahead = {child.pid for child in reserved(group, 4)}
    group.execute(SUM)
    assert group.pull("total.item(), world_size") == [(2.0, 2)] * 2
    group.resize(4)
    group.execute(SUM)
    assert group.pull("total.item(), world_size") == [(4.0, 4)] * 4
    assert len(ahead) == 2 and ahead <= set(group.pids)


def test_ranks_that_were_started_ahead_and_died_since_are_reported_by_the_resize_that_needs_them(group):
    (ahead,) = reserved(group, 3)
    ahead.kill()
    with pytest.raises(StartError, match="Rank 2 was killed by SIGKILL"):
        group.resize(3)


def test_no_more_ranks_are_started_ahead_than_there_is_room_for(group):
    with pytest.raises(StartError, match="room for 5 ranks, not 6"):
        group.reserve(6)


def test_processors_are_shared_among_the_ranks_that_there_are(group):
    group.resize(1)
    alone = group.pull("torch.get_num_threads()")
    with fourranks.start(1, "gloo") as other:
        assert alone == other.pull("torch.get_num_threads()")


def test_what_ranks_in_reserve_print_is_not_shown(group):
    group.execute(
        "import threading; threading.Timer(0.3, lambda: print('late')).start() if rank == 1 else None"
    )
    group.resize(1)
    assert "late" not in str(group.execute("import time; time.sleep(0.6); 'over'"))


def test_a_deadlock_in_a_resized_world_is_proven_and_survived(group):
    group.resize(3)
    group.execute("kept = rank")
    with pytest.raises(DeadlockError, match="rank 2"):
        group.execute("dist.barrier() if rank < 2 else None")
    assert group.pull("kept") == [0, 1, 2]
    group.execute(SUM)


def test_a_restarted_world_keeps_its_size(group):
    group.resize(3)
    group.restart()
    group.execute(SUM)
    assert group.pull("total.item()") == [3.0] * 3


@pytest.mark.parametrize("world_size", [0, 6, "2"])
def test_sizes_without_room_are_refused_and_change_nothing(group, world_size):
    with pytest.raises(StartError):
        group.resize(world_size)
    group.execute(SUM)
    assert group.pull("total.item()") == [2.0] * 2


def test_a_rank_that_dies_in_reserve_is_missed_when_it_is_needed(group):
    group.resize(3)
    pid = group.pids[2]
    group.resize(2)
    os.kill(pid, signal.SIGKILL)
    group.execute(SUM)
    with pytest.raises(StartError, match="Rank 2 was killed by SIGKILL"):
        group.resize(3)
    with pytest.raises(FourRanksError, match="stopped"):
        group.execute("1")


def test_ranks_that_cannot_be_connected_are_in_no_line_of_the_readers(group):
    group.execute(
        "from fourranks.rank import default_group\n"
        "def fail(*_): raise RuntimeError('no such interface')\n"
        "if rank == 1: default_group.TORCH_INIT = fail"
    )
    with pytest.raises(StartError) as caught:
        group.resize(3)
    assert "Ranks 0,2 wait in init_process_group (outside of your code), for rank 1." in str(caught.value)


def test_a_stopped_world_cannot_be_resized(group):
    group.stop()
    with pytest.raises(FourRanksError, match="stopped"):
        group.resize(3)


def test_ranks_in_reserve_come_back_after_rank_0_has_cut_all_its_connections(group):
    group.resize(4)
    group.execute("kept = 10 * rank")
    group.resize(2)
    group.execute("from fourranks.rank import rescue; rescue.cut(rescue.tcp_connections())", ranks=[0])
    group.resize(4)
    group.execute(SUM)
    assert group.pull("total.item(), kept") == [(4.0, 10 * rank) for rank in range(4)]
