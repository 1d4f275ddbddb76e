# ruff: noqa: F821
FAILS_AS = {
    "everybody_serves_rank_0_first": ("ALL_SEND_FIRST", "receive first"),
    "stores_by_destination": ("SHIFTED", "With 2 ranks all is well"),
    "sends_whole_inputs": ("BYTES", "does not need"),
    "by_way_of_rank_0": ("BYTES", "send too much"),
    "forgets_its_own": ("UNFILLED", "own part"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "cannot_be_empty": ("RAISED", "empty tensors"),
    "swaps_in_the_input": ("MODIFIED", "belongs to the caller"),
    "returns_the_work": ("WRONG_TYPE", "the task"),
}


def transpose(output, input, group, keep_own=True):
    """Right, but for its own chunk if `keep_own` is False."""
    rank, world_size = place(group)
    arriving, leaving = output.tensor_split(world_size), input.tensor_split(world_size)
    if keep_own:
        arriving[rank].copy_(leaving[rank])
    for distance in range(1, world_size):
        pass_on(
            leaving[(rank + distance) % world_size], arriving[(rank - distance) % world_size], group, distance
        )


def everybody_serves_rank_0_first(output, input, group=None):
    rank, world_size = place(group)
    arriving, leaving = output.tensor_split(world_size), input.tensor_split(world_size)
    arriving[rank].copy_(leaving[rank])
    peers = [peer for peer in range(world_size) if peer != rank]
    for peer in peers:
        dist.send(leaving[peer], group_dst=peer, group=group)
    for peer in peers:
        dist.recv(arriving[peer], group_src=peer, group=group)


def stores_by_destination(output, input, group=None):
    rank, world_size = place(group)
    arriving, leaving = output.tensor_split(world_size), input.tensor_split(world_size)
    arriving[rank].copy_(leaving[rank])
    for distance in range(1, world_size):
        right = (rank + distance) % world_size
        pass_on(leaving[right], arriving[right], group, distance)


def sends_whole_inputs(output, input, group=None):
    rank, world_size = place(group)
    arriving = output.tensor_split(world_size)
    arriving[rank].copy_(input.tensor_split(world_size)[rank])
    for distance in range(1, world_size):
        received = torch.empty_like(input)
        pass_on(input, received, group, distance)
        arriving[(rank - distance) % world_size].copy_(received.tensor_split(world_size)[rank])


def by_way_of_rank_0(output, input, group=None):
    rank, world_size = place(group)
    if rank > 0:
        dist.send(input, group_dst=0, group=group)
        dist.recv(output, group_src=0, group=group)
        return
    rows = [input] + [torch.empty_like(input) for _ in range(1, world_size)]
    for peer in range(1, world_size):
        dist.recv(rows[peer], group_src=peer, group=group)
    columns = [
        torch.cat(column) for column in zip(*(row.tensor_split(world_size) for row in rows), strict=True)
    ]
    output.copy_(columns[0])
    for peer in range(1, world_size):
        dist.send(columns[peer], group_dst=peer, group=group)


def forgets_its_own(output, input, group=None):
    transpose(output, input, group, keep_own=False)


def calls_the_collective(output, input, group=None):
    dist.all_to_all_single(output, input, group=group)


def cannot_be_empty(output, input, group=None):
    _, world_size = place(group)
    transpose(output, input.view(-1, len(input) // world_size).view_as(input), group)


def swaps_in_the_input(output, input, group=None):
    transpose(output, input, group)
    input.copy_(output)


def returns_the_work(output, input, group=None):
    transpose(output, input, group)
    return dist.irecv
