"""A call that names a rank which its group does not have is explained, and nobody waits for that rank."""

from __future__ import annotations

import pytest

import fourranks

# Code of each rank, for one of which the neighbour does not exist; and the error of that one.
RINGS = {
    "dist.send(x, rank + 1)": "There is no rank 4 in this group of 4, whose ranks are 0 to 3.",
    "dist.send(x, rank - 1)": "There is no rank -1 in this group of 4, whose ranks are 0 to 3.",
    "dist.send(x, group_dst=rank + 1)": "There is no rank 4",
    "dist.isend(x, rank - 1).wait()": "There is no rank -1",
    "dist.recv(x, rank + 1)": "There is no rank 4",
    "dist.recv(x, src=rank - 1)": "There is no rank -1",
    "dist.recv(x, group_src=rank - 1)": "There is no rank -1",
    "dist.irecv(x, rank + 1).wait()": "There is no rank 4",
    "dist.batch_isend_irecv([dist.P2POp(dist.isend, x, rank + 1)])[0].wait()": "There is no rank 4",
    "dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, rank - 1)])[0].wait()": "There is no rank -1",
    "dist.group.WORLD.send([x], dstRank=rank + 1, tag=0).wait()": "There is no rank 4",
    "dist.send_object_list([1], rank - 1)": "There is no rank -1",
}

ROOTED = (
    "dist.broadcast(x, {})",
    "dist.broadcast(x, group_src={})",
    "dist.broadcast_object_list([1], {})",
    "dist.reduce(x, {})",
    "dist.reduce(x, {}, async_op=True)",
    "dist.gather(x, None, {})",
    "dist.gather_object(1, None, {})",
    "dist.scatter(x, None, {})",
    "dist.group.WORLD.broadcast(x, root={})",
)


@pytest.fixture(scope="module")
def ranks():
    with fourranks.start(4, "gloo") as group:
        group.execute("x, kept = torch.ones(2), rank")
        yield group


def error_of(ranks, cell):
    """The error of a cell, which leaves the ranks as they were."""
    with pytest.raises(fourranks.RankError) as raised:
        ranks.execute(cell, timeout=30)
    assert ranks.pull("kept") == list(range(ranks.world_size))
    ranks.execute("dist.barrier()", timeout=30)
    return raised.value


@pytest.mark.parametrize("call", RINGS)
def test_a_ring_that_is_not_closed_names_the_missing_rank_the_line_and_the_remainder(ranks, call):
    error = error_of(ranks, f"x = torch.ones(2)\n{call}")
    (rank,) = error.errors
    own, sign = (3, "+") if rank else (0, "-")
    assert rank == own and error.errors[rank].name == "ValueError"
    message = error.errors[rank].message
    assert message.startswith(RINGS[call])
    assert f"line 2: {call}" in message
    assert f"(rank {sign} 1) % world_size is {3 - own}" in message
    assert "free again and keep their variables" in str(error)


@pytest.mark.parametrize("call", ROOTED)
@pytest.mark.parametrize("root", [4, -1])
def test_a_root_that_the_group_does_not_have_is_explained_below_torchs_sentence(ranks, call, root):
    error = error_of(ranks, call.format(root))
    assert sorted(error.errors) == [0, 1, 2, 3]
    for each in error.errors.values():
        assert each.name == "RuntimeError" and f"invalid root rank: {root}" in each.message
        assert f"There is no rank {root} in this group of 4, whose ranks are 0 to 3." in each.message


def test_ranks_that_name_different_roots_hear_first_of_the_one_that_does_not_exist(ranks):
    error = error_of(ranks, "dist.broadcast(x, rank + 1)")
    assert list(error.errors) == [3]
    assert "There is no rank 4 in this group of 4" in error.errors[3].message


def test_a_number_far_outside_is_no_ring(ranks):
    message = error_of(ranks, "if rank == 1: dist.send(x, 100)").errors[1].message
    assert "There is no rank 100" in message and "%" not in message


def test_a_subgroup_counts_its_own_ranks(ranks):
    cell = (
        "pair = dist.new_group([1, 3])\n"
        "if rank in (1, 3): dist.send(x, group=pair, group_dst=dist.get_rank(pair) + 1)"
    )
    message = error_of(ranks, cell).errors[3].message
    assert message.startswith("There is no rank 2 in this group of 2, whose ranks are 0 to 1.")
    assert "Counted in the whole world, they are 1, 3." in message
    assert "(group.rank() + 1) % group.size() is 0" in message


def test_a_rank_that_is_no_member_is_told_who_is(ranks):
    cell = "pair = dist.new_group([1, 3])\nif rank in (1, 3): dist.send(x, 2, group=pair)"
    error = error_of(ranks, cell)
    assert sorted(error.errors) == [1, 3] and "Ranks 1,3 raised ValueError" in str(error)  # shown once
    assert "Global rank 2 is not part of group" in error.errors[1].message
    assert "ranks 1, 3" in error.errors[1].message


@pytest.mark.parametrize("call", ["dist.recv(x, rank)", "dist.isend(x, rank)", "dist.irecv(x, rank)"])
def test_a_message_to_oneself_is_explained(ranks, call):
    error = error_of(ranks, call)
    assert all("only with other ranks" in each.message for each in error.errors.values())


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_every_size_of_world_names_its_own_ranks(world_size):
    with fourranks.start(world_size, "gloo") as group:
        group.execute("kept = rank")
        error = error_of(group, "dist.send(torch.ones(1), rank + 1)")
        (message,) = (each.message for each in error.errors.values())
        assert f"There is no rank {world_size} in this group of {world_size}" in message
