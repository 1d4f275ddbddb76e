# ruff: noqa: F821
FAILS_AS = {
    "takes_negative_dims_for_the_last": ("WRONG_FORWARD or ANOTHER_SHAPE_OF_A_PART", "another dimension"),
    "gathers_without_history": ("CUT_GRAPH", "torch.autograd.Function"),
    "sums_gathered_gradients": ("SUMMED_NEEDLESSLY", "factor of the number of ranks"),
    "stacks": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "gathers_along_the_last": ("ANOTHER_SHAPE_OF_A_PART", "Only another dimension"),
    "passes_the_first_part_back": ("PART_OF_ANOTHER_RANK", "position in the group"),
    "counts_ranks_of_the_world": ("RAISED or PART_OF_ANOTHER_RANK or WRONG_BACKWARD", "Only a group"),
    "adds_up_zeros": ("BYTES_IN_FORWARD", "where parts would do"),
    "gathers_in_the_default_group": ("UNEVEN_COLLECTIVES or TIMED_OUT", "Only a group"),
    "last_rank_first": ("PARTS_IN_ANOTHER_ORDER", "first rank comes first"),
    "passes_all_back": ("RAISED", "Read the line"),
    "broadcasts_in_turn": ("COLLECTIVES_IN_FORWARD", "not a broadcast from each rank"),
    "calls_torch_s": ("FORBIDDEN_LIBRARY", "cell of your own"),
}


def gathers_without_history(x, dim, group=None):
    return together(x.detach(), dim, group)


def replaces_its_own_part(x, dim, group=None):
    """Right: of the parts, only this rank's own has a history."""
    parts = gathered(x.detach(), group)
    parts[dist.get_rank(group)] = x
    return torch.cat(parts, dim)


sums_gathered_gradients = made_of(together, part_of_sum)
stacks = made_of(lambda x, dim, group: torch.stack(gathered(x, group), dim), part)
gathers_along_the_last = made_of(lambda x, dim, group: together(x, -1, group), part)
passes_the_first_part_back = made_of(
    together, lambda g, dim, group: g.chunk(dist.get_world_size(group), dim)[0]
)
counts_ranks_of_the_world = made_of(
    together, lambda g, dim, group: g.tensor_split(dist.get_world_size(group), dim)[dist.get_rank()]
)


def padded_sum(x, dim, group):
    parts = [torch.zeros_like(x) for _ in range(dist.get_world_size(group))]
    parts[dist.get_rank(group)] = x
    return summed(torch.cat(parts, dim), group)


adds_up_zeros = made_of(padded_sum, part)
gathers_in_the_default_group = made_of(lambda x, dim, group: together(x, dim, None), part)


last_rank_first = made_of(lambda x, dim, group: torch.cat(gathered(x, group)[::-1], dim), part)
passes_all_back = made_of(together, identity)


def broadcast_parts(x, dim, group):
    parts = [x.clone(memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    for source, each in enumerate(parts):
        dist.broadcast(each, group_src=source, group=group)
    return torch.cat(parts, dim)


broadcasts_in_turn = made_of(broadcast_parts, part)


def calls_torch_s(x, dim, group=None):
    import torch.distributed.nn.functional as differentiable

    return torch.cat(differentiable.all_gather(x, group), dim)


def takes_negative_dims_for_the_last(x, dim, group=None):
    return gather(x, max(dim, -1), group=group)
