# ruff: noqa: F821
FAILS_AS = {
    "one_after_another": ("ROUNDS", "in the same round"),
    "along_a_chain": ("ROUNDS", "in the same round"),
    "sends_everything_twice": ("BYTES", "send too much"),
    "always_from_rank_0": ("UNTOUCHED", "other than rank 0"),
    "needs_a_power_of_two": ("DEADLOCK", "no power of two"),
    "forgets_the_group": ("RAISED or DEADLOCK", "pass group="),
    "counts_on_from_the_first_rank": ("RAISED", "apart from global ranks"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "receives_elsewhere": ("UNTOUCHED", "into the argument itself"),
    "does_not_wait": ("UNWAITED", "wait()"),
    "receives_at_the_source_too": ("DEADLOCK", "no rank sends"),
}


def one_after_another(tensor, src, group=None):
    rank, world_size = place(group)
    root = position_of(src, group)
    if rank != root:
        return dist.recv(tensor, group_src=root, group=group) and None
    for peer in range(world_size):
        if peer != root:
            dist.send(tensor, group_dst=peer, group=group)


def along_a_chain(tensor, src, group=None):
    rank, world_size = place(group)
    position = (rank - position_of(src, group)) % world_size
    if position > 0:
        dist.recv(tensor, group_src=(rank - 1) % world_size, group=group)
    if position < world_size - 1:
        dist.send(tensor, group_dst=(rank + 1) % world_size, group=group)


def tree(tensor, rank, root, world_size, group=None, copies=1):
    position, reach = (rank - root) % world_size, 1
    while reach < world_size:
        for _ in range(copies):
            if position < reach and position + reach < world_size:
                dist.send(tensor, group_dst=(rank + reach) % world_size, group=group)
            elif reach <= position < 2 * reach:
                dist.recv(tensor, group_src=(rank - reach) % world_size, group=group)
        reach *= 2


def sends_everything_twice(tensor, src, group=None):
    rank, world_size = place(group)
    tree(tensor, rank, position_of(src, group), world_size, group, copies=2)


def always_from_rank_0(tensor, src, group=None):
    rank, world_size = place(group)
    tree(tensor, rank, 0, world_size, group)


def needs_a_power_of_two(tensor, src, group=None):
    rank, world_size = place(group)
    position, reach = (rank - position_of(src, group)) % world_size, 1
    while reach < world_size:
        if position < reach:
            dist.send(tensor, group_dst=(rank + reach) % world_size, group=group)
        elif position < 2 * reach:
            dist.recv(tensor, group_src=(rank - reach) % world_size, group=group)
        reach *= 2


def forgets_the_group(tensor, src, group=None):
    rank, world_size = place(group)
    tree(tensor, rank, position_of(src, group), world_size)


def counts_on_from_the_first_rank(tensor, src, group=None):
    first, (rank, world_size) = dist.get_process_group_ranks(group)[0], place(group)
    position, reach = (rank - (src - first)) % world_size, 1
    while reach < world_size:
        if position < reach and position + reach < world_size:
            dist.send(tensor, first + (rank + reach) % world_size, group=group)
        elif reach <= position < 2 * reach:
            dist.recv(tensor, first + (rank - reach) % world_size, group=group)
        reach *= 2


def calls_the_collective(tensor, src, group=None):
    dist.broadcast(tensor, src, group=group)


def receives_elsewhere(tensor, src, group=None):
    rank, world_size = place(group)
    tensor = tensor.clone()
    tree(tensor, rank, position_of(src, group), world_size, group)


def does_not_wait(tensor, src, group=None):
    rank, world_size = place(group)
    position, reach = (rank - position_of(src, group)) % world_size, 1
    while reach < world_size:
        if position < reach and position + reach < world_size:
            dist.isend(tensor, group_dst=(rank + reach) % world_size, group=group)
        elif reach <= position < 2 * reach:
            dist.recv(tensor, group_src=(rank - reach) % world_size, group=group)
        reach *= 2


def receives_at_the_source_too(tensor, src, group=None):
    rank, world_size = place(group)
    if world_size > 1:
        dist.recv(tensor, group_src=(rank - 1) % world_size, group=group)
        dist.send(tensor, group_dst=(rank + 1) % world_size, group=group)
