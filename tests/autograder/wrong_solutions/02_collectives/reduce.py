# ruff: noqa: F821
FAILS_AS = {
    "everybody_to_the_destination": ("ROUNDS", "in the same round"),
    "always_to_rank_0": ("UNTOUCHED", "other than rank 0"),
    "needs_a_power_of_two": ("DEADLOCK", "no power of two"),
    "passes_on_its_own_only": ("MISSING_SUMMAND", "lost on the way"),
    "adds_its_own_twice": ("REPEATED_SUMMAND", "added twice"),
    "receives_as_float32": ("MISMATCH", "shape and dtype"),
    "averages": ("AVERAGED", "sum itself"),
    "adds_in_float64": ("LOST_DIGITS", "dtype of the tensor"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "rebinds_the_argument": ("UNTOUCHED", "into the argument itself"),
    "adds_before_it_waits": ("MISSING_SUMMAND", "waited for first"),
    "forwards_every_tensor": ("BYTES", "partial results"),
}


def everybody_to_the_destination(tensor, dst, group=None):
    rank, world_size = place(group)
    root = position_of(dst, group)
    if rank != root:
        dist.send(tensor, group_dst=root, group=group)
        return
    for peer in range(world_size):
        if peer != root:
            received = torch.empty_like(tensor)
            dist.recv(received, group_src=peer, group=group)
            tensor += received


def tree(tensor, rank, root, world_size, group, add, buffer=torch.empty_like):
    """A tree that is right if `add(own, received)` is; returns what this rank ends with."""
    position, distance, total = (rank - root) % world_size, 1, tensor
    while distance < world_size:
        if position % (2 * distance) == distance:
            dist.send(total, group_dst=(rank - distance) % world_size, group=group)
            return total
        if position + distance < world_size:
            received = buffer(tensor)
            dist.recv(received, group_src=(rank + distance) % world_size, group=group)
            total = add(total, received)
        distance *= 2
    return total


def always_to_rank_0(tensor, dst, group=None):
    rank, world_size = place(group)
    tree(tensor, rank, 0, world_size, group, torch.Tensor.add_)


def needs_a_power_of_two(tensor, dst, group=None):
    rank, world_size = place(group)
    position, distance = (rank - position_of(dst, group)) % world_size, 1
    while distance < world_size:
        if position % (2 * distance) == distance:
            dist.send(tensor, group_dst=(rank - distance) % world_size, group=group)
            return
        received = torch.empty_like(tensor)
        dist.recv(received, group_src=(rank + distance) % world_size, group=group)
        tensor += received
        distance *= 2


def passes_on_its_own_only(tensor, dst, group=None):
    rank, world_size = place(group)
    root = position_of(dst, group)
    own = tensor.clone()
    total = tree(
        own, rank, root, world_size, group, lambda own, received: own if rank != root else own + received
    )
    if rank == root:
        tensor.copy_(total)


def adds_its_own_twice(tensor, dst, group=None):
    rank, world_size = place(group)
    own = tensor.clone()
    tensor.copy_(
        tree(
            own, rank, position_of(dst, group), world_size, group, lambda sum, received: sum + own + received
        )
    )


def receives_as_float32(tensor, dst, group=None):
    rank, world_size = place(group)
    root = position_of(dst, group)
    tree(tensor, rank, root, world_size, group, torch.Tensor.add_, lambda like: torch.empty(like.numel()))


def averages(tensor, dst, group=None):
    rank, world_size = place(group)
    root = position_of(dst, group)
    tree(tensor, rank, root, world_size, group, torch.Tensor.add_)
    if rank == root:
        tensor.copy_(tensor / world_size)


def adds_in_float64(tensor, dst, group=None):
    rank, world_size = place(group)

    def add(own, received):
        return own.copy_(own.double() + received.double())

    tree(tensor, rank, position_of(dst, group), world_size, group, add)


def calls_the_collective(tensor, dst, group=None):
    dist.reduce(tensor, dst, group=group)


def rebinds_the_argument(tensor, dst, group=None):
    rank, world_size = place(group)
    tensor = tree(tensor, rank, position_of(dst, group), world_size, group, torch.Tensor.add)


def adds_before_it_waits(tensor, dst, group=None):
    rank, world_size = place(group)
    position, distance = (rank - position_of(dst, group)) % world_size, 1
    received = torch.zeros_like(tensor)
    while distance < world_size:
        if position % (2 * distance) == distance:
            dist.send(tensor, group_dst=(rank - distance) % world_size, group=group)
            return
        if position + distance < world_size:
            tensor += received
            dist.irecv(received, group_src=(rank + distance) % world_size, group=group).wait()
        distance *= 2


def forwards_every_tensor(tensor, dst, group=None):
    rank, world_size = place(group)
    position = (rank - position_of(dst, group)) % world_size
    kept, distance = [tensor.clone()], 1
    while distance < world_size:
        if position % (2 * distance) == distance:
            for part in kept:
                dist.send(part, group_dst=(rank - distance) % world_size, group=group)
            return
        for _ in range(max(0, min(distance, world_size - position - distance))):
            kept.append(torch.empty_like(tensor))
            dist.recv(kept[-1], group_src=(rank + distance) % world_size, group=group)
        distance *= 2
    tensor.copy_(sum(kept))
