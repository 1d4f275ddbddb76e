"""Uses `rank` and `world_size`, which no cell defines and every rank has."""


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    assert peer == world_size - 1 - rank
    order = [dist.send, dist.recv] if rank < peer else [dist.recv, dist.send]
    for communicate in order:
        communicate(tensor if communicate is dist.send else received, peer)
    return received
