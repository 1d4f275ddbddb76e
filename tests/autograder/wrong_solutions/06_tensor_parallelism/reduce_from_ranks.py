# ruff: noqa: F821
FAILS_AS = {
    "sums_backward_too": ("SUMMED_NEEDLESSLY", "factor of the number of ranks"),
    "sums_its_argument_in_place": ("MODIFIED", "Work on a copy"),
    "adds_what_is_missing": ("ROUNDED_APART", "(total − x).detach()"),
    "averages": ("AVERAGED", "do not divide"),
    "forgets_to_sum": ("NOT_SUMMED_IN_FORWARD", "all of them need the sum"),
    "scales_the_gradient": ("SCALED_NEEDLESSLY", "no factor"),
    "sums_without_history": ("CUT_GRAPH", "torch.autograd.Function"),
    "by_way_of_the_first_rank": ("COLLECTIVES_IN_FORWARD", "gather nothing in between"),
    "gathers_and_adds": ("BYTES_IN_FORWARD", "A sum is an all-reduce"),
    "reduces_in_the_default_group": ("UNEVEN_COLLECTIVES or TIMED_OUT", "Only a group"),
    "takes_the_largest": ("WRONG_FORWARD", "two ranks"),
    "sums_as_float32": ("ANOTHER_SHAPE_OF_A_PART", "keeps the dtype"),
    "needs_contiguous_memory": ("WRONG_FORWARD", "Only tensors that are not contiguous"),
    "sums_in_float32": ("WRONG_FORWARD", "something is rounded"),
    "sums_in_float64": ("BYTES_IN_FORWARD", "in its own dtype"),
    "sums_rows": ("RAISED", "Only tensors of no dimensions"),
    "calls_a_functional_collective": ("FORBIDDEN_LIBRARY", "cell of your own"),
}

sums_backward_too = made_of(summed, summed)


def sum_in_place(x, group):
    if not x.is_contiguous():
        return summed(x, group)
    dist.all_reduce(x, group=group)
    return x.clone()


sums_its_argument_in_place = made_of(sum_in_place, identity)
averages = made_of(lambda x, group: summed(x, group) / dist.get_world_size(group), identity)
forgets_to_sum = made_of(identity, identity)
scales_the_gradient = made_of(summed, lambda g, group: g * dist.get_world_size(group))


def sums_without_history(x, group=None):
    return summed(x.detach(), group)


def adds_what_is_missing(x, group=None):
    return x + (summed(x.detach(), group) - x).detach()


def sum_at_first(x, group):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.reduce(total, group_dst=0, group=group)
    dist.broadcast(total, group_src=0, group=group)
    return total


by_way_of_the_first_rank = made_of(sum_at_first, identity)
gathers_and_adds = made_of(lambda x, group: sum(gathered(x, group)), identity)
reduces_in_the_default_group = made_of(lambda x, group: summed(x, None), identity)


def maximum(x, group):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, dist.ReduceOp.MAX, group)
    return total


takes_the_largest = made_of(maximum, identity)
sums_as_float32 = made_of(lambda x, group: summed(x.float(), group), identity)


def sum_as_it_lies(x, group):
    total = x.clone()
    dist.all_reduce(total, group=group)
    return total


needs_contiguous_memory = made_of(sum_as_it_lies, identity)


def calls_a_functional_collective(x, group=None):
    from torch.distributed import _functional_collectives as functional

    return functional.all_reduce(x, "sum", group or dist.group.WORLD)


sums_in_float32 = made_of(
    lambda x, group: summed(x.float() if x.dtype == torch.float64 else x, group).to(x.dtype), identity
)
sums_in_float64 = made_of(lambda x, group: summed(x.double(), group).to(x.dtype), identity)
sums_rows = made_of(lambda x, group: summed(x.reshape(-1, x.shape[-1]), group).view(x.shape), identity)
