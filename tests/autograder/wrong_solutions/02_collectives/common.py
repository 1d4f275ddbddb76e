# Helpers of the wrong solutions: all of them are right.
import torch  # noqa: F401
import torch.distributed as dist


def place(group=None):
    return dist.get_rank(group), dist.get_world_size(group)


def position_of(rank, group=None):
    return dist.get_process_group_ranks(group).index(rank)


def pass_on(outgoing, incoming, group=None, distance=1):
    rank, world_size = place(group)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, outgoing, group_peer=(rank + distance) % world_size, group=group),
            dist.P2POp(dist.irecv, incoming, group_peer=(rank - distance) % world_size, group=group),
        ]
    )
    for work in works:
        work.wait()
