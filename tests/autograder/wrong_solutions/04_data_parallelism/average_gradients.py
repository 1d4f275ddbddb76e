# ruff: noqa: F821
FAILS_AS = {
    "sums": ("SUMMED", "ReduceOp.AVG"),
    "averages_twice": ("DIVIDED_TWICE", "divides already"),
    "skips_missing_gradients": ("OUT_OF_STEP or WRONG_GRADIENT or NO_GRADIENT", "Only unused parameters"),
    "makes_zeros_of_the_default_dtype": ("RAISED", "Only unused parameters"),
    "averages_frozen_parameters": ("SENT_TWICE", "Only frozen parameters"),
    "divides_by_the_users": ("SENT_TWICE", "sent once"),
    "averages_tied_parameters_twice": ("SENT_TWICE", "Only tied parameters"),
    "uses_the_default_group": ("OUT_OF_STEP", "Only a group"),
    "divides_by_the_world": ("DIVIDED_WRONGLY", "Only a group"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "one_dtype_for_all": ("CAST", "a bucket for each dtype"),
    "by_way_of_rank_0": ("UNEXPECTED_CALL", "all-reduces of gradients"),
    "takes_a_step": ("WEIGHTS_MOVED", "The optimizer"),
    "averages_the_weights": ("OWN_GRADIENT", "still has its own gradient"),
    "works_on_a_copy": ("OWN_GRADIENT", "copied back"),
    "clears_what_was_not_used": ("OUT_OF_STEP or NO_GRADIENT or WRONG_GRADIENT", "Only unused parameters"),
    "sends_rows": ("ALL_REDUCES", "its own all-reduce"),
    "sends_slices": ("RAISED", "no dimension"),
    "clears_buffers": ("WEIGHTS_MOVED", "Average only"),
    "sends_a_buffer_that_it_filled_once": ("FROM_AN_EARLIER_CALL", "filled again"),
    "averages_all_that_it_ever_saw": ("FROM_AN_EARLIER_CALL", "filled again"),
}


def trainable(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def average(parameter, group, op=dist.ReduceOp.AVG):
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    dist.all_reduce(parameter.grad, op, group)


def sums(module, group=None):
    for parameter in trainable(module):
        average(parameter, group, dist.ReduceOp.SUM)


def averages_twice(module, group=None):
    for parameter in trainable(module):
        average(parameter, group)
        parameter.grad /= dist.get_world_size(group)


def skips_missing_gradients(module, group=None):
    for parameter in trainable(module):
        if parameter.grad is not None:
            average(parameter, group)


def makes_zeros_of_the_default_dtype(module, group=None):
    for parameter in trainable(module):
        if parameter.grad is None:
            parameter.grad = torch.zeros(parameter.shape)
        average(parameter, group)


def averages_frozen_parameters(module, group=None):
    for parameter in module.parameters():
        average(parameter, group)


def divides_by_the_users(module, group=None):
    for parameter in trainable(module):
        users = torch.tensor(float(parameter.grad is not None))
        average(parameter, group, dist.ReduceOp.SUM)
        dist.all_reduce(users, group=group)
        parameter.grad /= users.clamp(min=1).to(parameter.dtype)


def averages_tied_parameters_twice(module, group=None):
    for _, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            average(parameter, group)


def uses_the_default_group(module, group=None):
    for parameter in trainable(module):
        average(parameter, None)


def divides_by_the_world(module, group=None):
    for parameter in trainable(module):
        average(parameter, group, dist.ReduceOp.SUM)
        parameter.grad /= dist.get_world_size()


def forgets_to_wait(module, group=None):
    for parameter in trainable(module):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, group, async_op=True)


def one_dtype_for_all(module, group=None):
    parameters = trainable(module)
    numels = [p.numel() for p in parameters]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.float().flatten() for gradient in gradients])
    dist.all_reduce(flat, dist.ReduceOp.AVG, group)
    for parameter, part in zip(parameters, flat.split(numels), strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.dtype)


def by_way_of_rank_0(module, group=None):
    for parameter in trainable(module):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.reduce(parameter.grad, group_dst=0, group=group)
        parameter.grad /= dist.get_world_size(group)
        dist.broadcast(parameter.grad, group_src=0, group=group)


def takes_a_step(module, group=None):
    for parameter in trainable(module):
        average(parameter, group)
        parameter.data -= 0.1 * parameter.grad


def averages_the_weights(module, group=None):
    for parameter in trainable(module):
        dist.all_reduce(parameter.detach(), dist.ReduceOp.AVG, group)


def works_on_a_copy(module, group=None):
    for parameter in trainable(module):
        copy = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        dist.all_reduce(copy, dist.ReduceOp.AVG, group)


def clears_what_was_not_used(module, group=None):
    for parameter in trainable(module):
        unused = parameter.grad is None
        average(parameter, group)
        if unused:
            parameter.grad = None


def sends_rows(module, group=None):
    for parameter in trainable(module):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        for row in parameter.grad:
            dist.all_reduce(row, dist.ReduceOp.AVG, group)


def averages_flat(module, group=None):  # which is right: a single message for each dtype
    by_dtype = {}
    for parameter in trainable(module):
        by_dtype.setdefault(parameter.dtype, []).append(parameter)
    for parameters in by_dtype.values():
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size(group)
        dist.all_reduce(flat, group=group, async_op=True).wait()
        for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)


def sends_slices(module, group=None):
    for parameter in trainable(module):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad[:], dist.ReduceOp.AVG, group)


def clears_buffers(module, group=None):
    for parameter in trainable(module):
        average(parameter, group)
    for buffer in module.buffers():
        buffer.zero_()


BUFFERS = {}


def sends_a_buffer_that_it_filled_once(module, group=None):
    for number, parameter in enumerate(trainable(module)):
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        buffer = BUFFERS.setdefault(number, gradient.clone())
        dist.all_reduce(buffer, dist.ReduceOp.AVG, group)
        parameter.grad = buffer.clone()


def averages_all_that_it_ever_saw(module, group=None, parameters=[]):  # noqa: B006
    parameters.extend(trainable(module))
    for parameter in parameters:
        average(parameter, group)
