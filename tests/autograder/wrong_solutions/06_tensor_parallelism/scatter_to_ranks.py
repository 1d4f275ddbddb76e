# ruff: noqa: F821
FAILS_AS = {
    "takes_a_slice": ("NOT_GATHERED_IN_BACKWARD", "all ranks put their parts together"),
    "scatters_from_the_first_rank": ("WRONG_FORWARD", "two ranks"),
    "accepts_a_remainder": ("INDIVISIBLE_ACCEPTED", "Raise a ValueError"),
    "asserts_that_it_divides": ("RAISED", "Read the line"),
    "refuses_without_reason": ("VAGUE_REFUSAL", "Name the size"),
    "takes_the_first_part": ("PART_OF_ANOTHER_RANK", "dist.get_rank(group)"),
    "sums_padded_gradients": ("BYTES_IN_BACKWARD", "half the bytes"),
    "deals_out_in_turn": ("WRONG_FORWARD", "two ranks"),
    "takes_its_part_of_the_world": ("RAISED or PART_OF_ANOTHER_RANK or WRONG_FORWARD", "Only a group"),
    "puts_parts_in_reverse": ("PARTS_IN_ANOTHER_ORDER", "comes first"),
    "sums_first": ("SUMMED_NEEDLESSLY", "already"),
}


def takes_a_slice(x, dim, group=None):
    return part(x, dim, group)


def from_the_first(x, dim, group):
    parts = None
    if dist.get_rank(group) == 0:
        parts = [each.contiguous() for each in x.chunk(dist.get_world_size(group), dim)]
    own = torch.empty_like(part(x, dim, group), memory_format=torch.contiguous_format)
    dist.scatter(own, parts, group_src=0, group=group)
    return own


scatters_from_the_first_rank = made_of(from_the_first, together)
accepts_a_remainder = made_of(
    lambda x, dim, group: x.tensor_split(dist.get_world_size(group), dim)[dist.get_rank(group)], together
)


def asserted(x, dim, group):
    assert x.shape[dim] % dist.get_world_size(group) == 0
    return part(x, dim, group)


asserts_that_it_divides = made_of(asserted, together)


def refused(x, dim, group):
    if x.shape[dim] % dist.get_world_size(group):
        raise ValueError("does not divide")
    return part(x, dim, group)


refuses_without_reason = made_of(refused, together)


def first_part(x, dim, group):
    share(x.shape[dim], group)
    return x.tensor_split(dist.get_world_size(group), dim)[0]


takes_the_first_part = made_of(first_part, together)


def padded_gradient(gradient, dim, group):
    parts = [torch.zeros_like(gradient) for _ in range(dist.get_world_size(group))]
    parts[dist.get_rank(group)] = gradient
    return summed(torch.cat(parts, dim), group)


sums_padded_gradients = made_of(part, padded_gradient)


def dealt(x, dim, group):
    n = dist.get_world_size(group)
    share(x.shape[dim], group)
    return x.index_select(dim, torch.arange(dist.get_rank(group), x.shape[dim], n))


deals_out_in_turn = made_of(dealt, together)


def part_by_rank_of_the_world(x, dim, group):
    share(x.shape[dim], group)
    return x.tensor_split(dist.get_world_size(group), dim)[dist.get_rank()]


takes_its_part_of_the_world = made_of(part_by_rank_of_the_world, together)
puts_parts_in_reverse = made_of(part, lambda g, dim, group: torch.cat(gathered(g, group)[::-1], dim))


def part_of_all(x, dim, group):
    share(x.shape[dim], group)
    return part_of_sum(x, dim, group)


sums_first = made_of(part_of_all, together)
