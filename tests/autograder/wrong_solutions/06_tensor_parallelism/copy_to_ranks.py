# ruff: noqa: F821
FAILS_AS = {
    "hooks_its_input": ("GRADIENT_OF_OTHER_USES", "Return a new tensor"),
    "returns_its_input": ("NOT_SUMMED_IN_BACKWARD", "sums them over the ranks"),
    "sums_forward_too": ("SUMMED_NEEDLESSLY", "already"),
    "averages_gradients": ("AVERAGED", "do not divide"),
    "sums_the_gradient_in_place": ("GRADIENT_OVERWRITTEN", "clone() always"),
    "sums_a_contiguous_gradient": ("GRADIENT_OVERWRITTEN", "contiguous() only sometimes"),
    "copies_without_history": ("CUT_GRAPH", "torch.autograd.Function"),
    "gathers_and_adds_gradients": ("BYTES_IN_BACKWARD", "A sum is an all-reduce"),
    "sums_in_the_default_group": ("UNEVEN_COLLECTIVES or TIMED_OUT", "Only a group"),
    "keeps_strides": ("WRONG_BACKWARD", "Only tensors that are not contiguous"),
    "takes_the_largest_gradient": ("WRONG_BACKWARD", "Forward is right"),
    "sums_gradients_in_float32": ("WRONG_BACKWARD", "something is rounded"),
    "sums_gradients_in_float64": ("BYTES_IN_BACKWARD", "in its own dtype"),
    "sums_rows_of_a_gradient": ("RAISED", "Only tensors of no dimensions"),
    "forgets_return": ("WRONG_TYPE", "without `return`"),
    "broadcasts": ("WRONG_FORWARD", "two ranks"),
    "sums_twice_as_much": ("COLLECTIVES_IN_BACKWARD", "mirrors"),
    "returns_before_the_sum": ("NO_WAIT", "async_op=True"),
    "does_not_wait": ("NO_WAIT", "async_op=True"),
}


def returns_its_input(x, group=None):
    return x * 1


def forgets_return(x, group=None):
    x * 1


sums_forward_too = made_of(summed, summed)
averages_gradients = made_of(identity, lambda g, group: summed(g, group) / dist.get_world_size(group))


def in_place(gradient, group):
    gradient = gradient.contiguous()
    dist.all_reduce(gradient, group=group)
    return gradient


sums_a_contiguous_gradient = made_of(identity, in_place)


def truly_in_place(gradient, group):
    if not gradient.is_contiguous():
        return summed(gradient, group)
    dist.all_reduce(gradient, group=group)
    return gradient


sums_the_gradient_in_place = made_of(identity, truly_in_place)


def copies_without_history(x, group=None):
    return x.detach().clone()


gathers_and_adds_gradients = made_of(identity, lambda g, group: sum(gathered(g, group)))
sums_in_the_default_group = made_of(identity, lambda g, group: summed(g, None))


def as_it_lies(gradient, group):
    total = gradient.clone()
    dist.all_reduce(total, group=group)
    return total


keeps_strides = made_of(identity, as_it_lies)


def largest(gradient, group):
    total = gradient.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, dist.ReduceOp.MAX, group)
    return total


takes_the_largest_gradient = made_of(identity, largest)


def from_first(x, group):
    x = x.clone(memory_format=torch.contiguous_format)
    dist.broadcast(x, group_src=0, group=group)
    return x


broadcasts = made_of(from_first, summed)


def to_first_and_back(gradient, group):
    total = gradient.clone(memory_format=torch.contiguous_format)
    dist.reduce(total, group_dst=0, group=group)
    dist.broadcast(total, group_src=0, group=group)
    return total


sums_twice_as_much = made_of(identity, to_first_and_back)


def later(gradient, group):
    total = gradient.clone(memory_format=torch.contiguous_format)
    work = dist.all_reduce(total, group=group, async_op=True)
    while not work.is_completed():
        pass
    return total


does_not_wait = made_of(identity, later)


def at_once(gradient, group):
    total = gradient.clone(memory_format=torch.contiguous_format)
    if dist.get_rank(group) == 0:
        time.sleep(0.02)  # the others have nothing of its part yet
    dist.all_reduce(total, group=group, async_op=True)
    return total.clone()


returns_before_the_sum = made_of(identity, at_once)


def hooks_its_input(x, group=None):
    x.register_hook(lambda gradient: summed(gradient, group))
    return x.view_as(x)


sums_gradients_in_float32 = made_of(
    identity, lambda g, group: summed(g.float() if g.dtype == torch.float64 else g, group).to(g.dtype)
)
sums_rows_of_a_gradient = made_of(
    identity, lambda g, group: summed(g.reshape(-1, g.shape[-1]), group).view(g.shape)
)
sums_gradients_in_float64 = made_of(identity, lambda g, group: summed(g.double(), group).to(g.dtype))
