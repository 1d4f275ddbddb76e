# ruff: noqa: F821
FAILS_AS = {
    "sends_to_itself": ("RAISED", "line that the message names"),
    "sends_the_whole_list": ("BYTES", "send too much"),
    "off_by_one": ("SHIFTED", "an index is off"),
    "leaves_the_source_out": ("OWN_PART", "does not send its own part"),
    "indexes_by_global_rank": ("RAISED", "pass group="),
    "clears_the_list": ("MODIFIED", "belongs to the caller"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "always_from_rank_0": ("RAISED", "other than rank 0"),
    "adds_to_the_output": ("ADDED_ON", "Overwrite it"),
    "makes_the_output_share_memory": ("OWN_PART", "copy_"),
    "returns_the_part": ("NOT_IN_PLACE", "copy_"),
}


def deal(output, parts, root, group):
    """Right if `parts` are."""
    rank, _ = place(group)
    if rank != root:
        dist.recv(output, group_src=root, group=group)
        return
    for position, part in enumerate(parts):
        if position == root:
            output.copy_(part)
        else:
            dist.send(part, group_dst=position, group=group)


def sends_to_itself(output, scatter_list, src, group=None):
    rank, _ = place(group)
    root = position_of(src, group)
    if rank == root:
        for position, part in enumerate(scatter_list):
            dist.send(part, group_dst=position, group=group)
    dist.recv(output, group_src=root, group=group)


def sends_the_whole_list(output, scatter_list, src, group=None):
    rank, world_size = place(group)
    root = position_of(src, group)
    if rank != root:
        everything = output.new_empty(world_size * output.numel())
        dist.recv(everything, group_src=root, group=group)
        output.copy_(everything.tensor_split(world_size)[rank])
        return
    output.copy_(scatter_list[root])
    for position in range(world_size):
        if position != root:
            dist.send(torch.cat(scatter_list), group_dst=position, group=group)


def off_by_one(output, scatter_list, src, group=None):
    deal(output, scatter_list and scatter_list[1:] + scatter_list[:1], position_of(src, group), group)


def leaves_the_source_out(output, scatter_list, src, group=None):
    rank, _ = place(group)
    root = position_of(src, group)
    if rank != root:
        dist.recv(output, group_src=root, group=group)
        return
    for position, part in enumerate(scatter_list):
        if position != root:
            dist.send(part, group_dst=position, group=group)


def indexes_by_global_rank(output, scatter_list, src, group=None):
    by_position = scatter_list and [scatter_list[r] for r in dist.get_process_group_ranks(group)]
    deal(output, by_position, position_of(src, group), group)


def clears_the_list(output, scatter_list, src, group=None):
    deal(output, scatter_list, position_of(src, group), group)
    for part in scatter_list or []:
        part.zero_()


def calls_the_collective(output, scatter_list, src, group=None):
    dist.scatter(output, scatter_list, src, group=group)


def always_from_rank_0(output, scatter_list, src, group=None):
    deal(output, scatter_list, 0, group)


def adds_to_the_output(output, scatter_list, src, group=None):
    part = output.clone()
    deal(part, scatter_list, position_of(src, group), group)
    output += part


def makes_the_output_share_memory(output, scatter_list, src, group=None):
    if scatter_list is None:
        deal(output, scatter_list, position_of(src, group), group)
        return
    deal(output.clone(), scatter_list, position_of(src, group), group)
    output.set_(scatter_list[position_of(src, group)])


def returns_the_part(output, scatter_list, src, group=None):
    part = output.clone()
    deal(part, scatter_list, position_of(src, group), group)
    return part
