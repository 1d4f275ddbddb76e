# ruff: noqa: F821
FAILS_AS = {
    "gathers_everything_and_adds": ("BYTES", "partial results"),
    "passes_whole_tensors_round": ("BYTES", "partial results"),
    "drops_the_remainder": ("UNFILLED", "do not divide"),
    "needs_a_multiple": ("RAISED", "do not divide"),
    "only_the_first_half": ("VALUE", "smallest failing case"),
    "averages": ("AVERAGED", "sum itself"),
    "always_pads": ("PADDING", "one too many"),
    "returns_the_sum": ("NOT_IN_PLACE", "copy_"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "by_way_of_rank_0": ("BYTES", "partial results"),
    "only_in_one_dimension": ("RAISED", "several dimensions"),
    "receives_into_more_than_it_needs": ("MISMATCH", "shape and dtype"),
    "sums_in_float32": ("LOST_DIGITS", "dtype of the tensor"),
}


def ring(tensor, group, halves=2):
    """A ring all-reduce that is right for every number of elements, in place."""
    rank, world_size = place(group)
    chunks = tensor.view(-1).tensor_split(world_size)
    for step in range(world_size - 1):
        received = torch.empty_like(chunks[(rank - step - 1) % world_size])
        pass_on(chunks[(rank - step) % world_size], received, group)
        chunks[(rank - step - 1) % world_size].add_(received)
    for step in range(world_size - 1 if halves == 2 else 0):
        pass_on(chunks[(rank + 1 - step) % world_size], chunks[(rank - step) % world_size], group)


def gathers_everything_and_adds(tensor, group=None):
    _, world_size = place(group)
    total = tensor.clone()
    for distance in range(1, world_size):
        received = torch.empty_like(tensor)
        pass_on(tensor, received, group, distance)
        total += received
    tensor.copy_(total)


def passes_whole_tensors_round(tensor, group=None):
    _, world_size = place(group)
    outgoing = tensor.clone()
    for _ in range(world_size - 1):
        received = torch.empty_like(tensor)
        pass_on(outgoing, received, group)
        tensor += received
        outgoing = received


def drops_the_remainder(tensor, group=None):
    _, world_size = place(group)
    whole = tensor.numel() // world_size * world_size
    ring(tensor[:whole], group)


def needs_a_multiple(tensor, group=None):
    _, world_size = place(group)
    ring(tensor.view(world_size, tensor.numel() // world_size), group)


def only_in_one_dimension(tensor, group=None):
    flat = tensor.new_empty(tensor.numel())
    flat[:] = tensor
    ring(flat, group)
    tensor.copy_(flat.view_as(tensor))


def only_the_first_half(tensor, group=None):
    ring(tensor, group, halves=1)


def averages(tensor, group=None):
    _, world_size = place(group)
    ring(tensor, group)
    tensor.copy_(tensor / world_size)


def always_pads(tensor, group=None):
    _, world_size = place(group)
    padded = tensor.new_zeros(world_size, tensor.numel() // world_size + 1)
    padded.view(-1)[: tensor.numel()] = tensor.flatten()
    ring(padded, group)
    tensor.copy_(padded.view(-1)[: tensor.numel()].view_as(tensor))


def returns_the_sum(tensor, group=None):
    total = tensor.clone()
    ring(total, group)
    return total


def calls_the_collective(tensor, group=None):
    dist.all_reduce(tensor, group=group)


def by_way_of_rank_0(tensor, group=None):
    rank, world_size = place(group)
    for peer in range(1, world_size):
        received = torch.empty_like(tensor)
        if rank == peer:
            dist.send(tensor, group_dst=0, group=group)
            dist.recv(tensor, group_src=0, group=group)
        elif rank == 0:
            dist.recv(received, group_src=peer, group=group)
            tensor += received
            if peer == world_size - 1:
                for waiting in range(1, world_size):
                    dist.send(tensor, group_dst=waiting, group=group)


def sums_in_float32(tensor, group=None):
    total = tensor.float()
    ring(total, group)
    tensor.copy_(total)


def receives_into_more_than_it_needs(tensor, group=None):
    rank, world_size = place(group)
    chunks = tensor.view(-1).tensor_split(world_size)
    for step in range(world_size - 1):
        received = torch.empty_like(chunks[0])  # the largest one
        pass_on(chunks[(rank - step) % world_size], received, group)
        chunk = chunks[(rank - step - 1) % world_size]
        chunk += received[: len(chunk)]
    for step in range(world_size - 1):
        pass_on(chunks[(rank + 1 - step) % world_size], chunks[(rank - step) % world_size], group)
