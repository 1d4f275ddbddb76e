# ruff: noqa: F821
FAILS_AS = {
    "gathers_without_history": ("cut graph", "torch.autograd.Function"),
    "sums_gathered_gradients": ("summed needlessly", "as many times too large"),
    "stacks": ("another shape of a part", "Compare with the table"),
    "gathers_along_the_last": ("another shape of a part", "Only another dimension"),
    "passes_the_first_part_back": ("another rank's part", "position in the group"),
    "counts_ranks_of_the_world": ("raised or another rank's part or wrong backward", "Only a group"),
    "adds_up_zeros": ("bytes in forward", "where parts would do"),
    "gathers_in_the_default_group": ("uneven collectives or timed out", "Only a group"),
    "last_rank_first": ("parts in another order", "first rank comes first"),
    "passes_all_back": ("raised", "Read the line"),
    "calls_torch_s": ("forbidden library", "cell of your own"),
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


def calls_torch_s(x, dim, group=None):
    import torch.distributed.nn.functional as differentiable

    return torch.cat(differentiable.all_gather(x, group), dim)
