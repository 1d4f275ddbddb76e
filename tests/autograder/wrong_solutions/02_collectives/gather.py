# ruff: noqa: F821
FAILS_AS = {
    "forgets_its_own": ("OWN_PART", "does not send its own part"),
    "appends_to_the_list": ("UNTOUCHED", "into the argument itself"),
    "gives_its_item_the_memory_of_its_own": ("OWN_PART", "copy_"),
    "puts_other_tensors_into_the_list": ("UNTOUCHED", "gather_list[0] = ..."),
    "off_by_one": ("VALUE", "smallest failing case"),
    "everybody_to_everybody": ("BYTES", "send too much"),
    "does_not_wait": ("UNWAITED", "wait()"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "always_to_rank_0": ("RAISED", "other than rank 0"),
    "in_halves": ("MESSAGES", "into one message"),
    "adds_to_the_tensor": ("MODIFIED", "belongs to the caller"),
}


def collect(tensor, slots, root, group):
    """Right if `slots`, the buffers by position, are."""
    rank, _ = place(group)
    if rank != root:
        dist.send(tensor, group_dst=root, group=group)
        return
    for position, slot in enumerate(slots):
        if position == root:
            slot.copy_(tensor)
        else:
            dist.recv(slot, group_src=position, group=group)


def forgets_its_own(tensor, gather_list, dst, group=None):
    rank, world_size = place(group)
    root = position_of(dst, group)
    if rank != root:
        dist.send(tensor, group_dst=root, group=group)
        return
    for position in range(world_size):
        if position != root:
            dist.recv(gather_list[position], group_src=position, group=group)


def appends_to_the_list(tensor, gather_list, dst, group=None):
    _, world_size = place(group)
    slots = [torch.empty_like(tensor) for _ in range(world_size)]
    collect(tensor, slots, position_of(dst, group), group)
    if gather_list is not None:
        gather_list.extend(slots)


def puts_other_tensors_into_the_list(tensor, gather_list, dst, group=None):
    _, world_size = place(group)
    slots = [torch.empty_like(tensor) for _ in range(world_size)]
    collect(tensor, slots, position_of(dst, group), group)
    if gather_list is not None:
        gather_list[:] = slots


def gives_its_item_the_memory_of_its_own(tensor, gather_list, dst, group=None):
    root = position_of(dst, group)
    if gather_list is not None:
        gather_list[root].set_(tensor)
    collect(tensor, gather_list, root, group)


def off_by_one(tensor, gather_list, dst, group=None):
    collect(tensor, gather_list and gather_list[1:] + gather_list[:1], position_of(dst, group), group)


def everybody_to_everybody(tensor, gather_list, dst, group=None):
    rank, world_size = place(group)
    slots = [torch.empty_like(tensor) for _ in range(world_size)]
    slots[rank].copy_(tensor)
    for distance in range(1, world_size):
        pass_on(tensor, slots[(rank - distance) % world_size], group, distance)
    for mine, slot in zip(gather_list or [], slots, strict=False):
        mine.copy_(slot)


def does_not_wait(tensor, gather_list, dst, group=None):
    rank, world_size = place(group)
    root = position_of(dst, group)
    if rank != root:
        dist.isend(tensor, group_dst=root, group=group)
        return
    collect(tensor, gather_list, root, group)


def calls_the_collective(tensor, gather_list, dst, group=None):
    dist.gather(tensor, gather_list, dst, group=group)


def always_to_rank_0(tensor, gather_list, dst, group=None):
    collect(tensor, gather_list, 0, group)


def in_halves(tensor, gather_list, dst, group=None):
    root = position_of(dst, group)
    for half in (0, 1):
        slots = gather_list and [slot.tensor_split(2)[half] for slot in gather_list]
        collect(tensor.tensor_split(2)[half], slots, root, group)


def adds_to_the_tensor(tensor, gather_list, dst, group=None):
    collect(tensor, gather_list, position_of(dst, group), group)
    tensor += 1
