import torch
import torch.distributed as dist

FAILS_AS = {
    "averages_every_gradient": ("COMMUNICATION_BETWEEN_LOCAL_STEPS", "after the last one"),
    "averages_after_every_step": ("COMMUNICATION_BETWEEN_LOCAL_STEPS", "after the last one"),
    "does_not_average": ("NOT_AVERAGED", "keep their own weights"),
    "averages_copies": ("NOT_AVERAGED", "only renames"),
    "sums": ("SUMMED_WEIGHTS", "divided by the number of ranks"),
    "takes_the_weights_of_one_rank": ("WEIGHTS_OF_ONE_RANK", "average their weights"),
    "never_clears_gradients": ("GRADIENTS_ADD_UP", "before each step"),
    "clears_after_the_step": ("GRADIENTS_ADD_UP", "the first one too"),
    "averages_what_has_a_gradient": ("DEADLOCK", "every rank of its group"),
    "averages_the_first_parameter_group": ("WRONG_WEIGHTS_AFTER_A_ROUND", "several groups"),
    "averages_over_all_ranks": ("DEADLOCK", "pass group="),
    "divides_by_the_world_size": ("WRONG_WEIGHTS_AFTER_A_ROUND", "Only a group"),
    "steps_once_for_all_batches": ("WRONG_WEIGHTS_AFTER_A_ROUND", "its own step"),
    "forgets_the_last_batch": ("WRONG_WEIGHTS_AFTER_A_ROUND", "one batch a rank"),
    "averages_the_momenta_too": ("WRONG_WEIGHTS_AFTER_A_ROUND", "keeps its own state"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "averages_in_float32": ("WRONG_WEIGHTS_AFTER_A_ROUND", "something is rounded"),
    "makes_new_parameters": ("WRONG_WEIGHTS_AFTER_A_ROUND", "write into those that are there"),
    "gathers_in_one_call": ("MORE_THAN_THE_WEIGHTS", "as there are others"),
    "gathers_everything": ("MORE_THAN_THE_WEIGHTS", "one all-reduce"),
    "averages_frozen_weights_too": ("MORE_THAN_THE_WEIGHTS", "Frozen ones"),
}


def steps(model, optimizer, batches, loss_fn):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()


def trained(model):
    return [parameter.data for parameter in model.parameters() if parameter.requires_grad]


def average(tensors, group):
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
        tensor /= dist.get_world_size(group)


def averages_every_gradient(model, optimizer, batches, loss_fn, group=None):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        average([weight.grad for weight in model.parameters() if weight.requires_grad], group)
        optimizer.step()


def averages_after_every_step(model, optimizer, batches, loss_fn, group=None):
    most = torch.tensor(len(batches))
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    for number in range(int(most)):
        steps(model, optimizer, batches[number : number + 1], loss_fn)
        average(trained(model), group)


def does_not_average(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)


def averages_copies(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    average([weight.clone() for weight in trained(model)], group)


def forgets_to_wait(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for tensor in trained(model):
        dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group, async_op=True)


def sums(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for weight in trained(model):
        dist.all_reduce(weight, group=group)


def averages_what_has_a_gradient(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    average([weight.data for weight in model.parameters() if weight.grad is not None], group)


def averages_the_first_parameter_group(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    average([weight.data for weight in optimizer.param_groups[0]["params"]], group)


def takes_the_weights_of_one_rank(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for weight in trained(model):
        dist.broadcast(weight, group_src=0, group=group)


def never_clears_gradients(model, optimizer, batches, loss_fn, group=None):
    for inputs, targets in batches:
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    average(trained(model), group)


def clears_after_the_step(model, optimizer, batches, loss_fn, group=None):
    for inputs, targets in batches:
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    average(trained(model), group)


def averages_over_all_ranks(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    average(trained(model), None)


def divides_by_the_world_size(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for weight in trained(model):
        dist.all_reduce(weight, group=group)
        weight /= dist.get_world_size()


def steps_once_for_all_batches(model, optimizer, batches, loss_fn, group=None):
    optimizer.zero_grad()
    for inputs, targets in batches:
        loss_fn(model(inputs), targets).backward()
    if batches:
        optimizer.step()
    average(trained(model), group)


def forgets_the_last_batch(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches[:-1], loss_fn)
    average(trained(model), group)


def averages_the_momenta_too(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    average(trained(model), group)
    momenta = [
        optimizer.state[parameter].get(name, torch.zeros_like(parameter))
        for parameter in model.parameters()
        if parameter.requires_grad
        for name in ("momentum_buffer", "exp_avg")
    ]
    average(momenta, group)


def averages_in_float32(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for weight in trained(model):
        small = weight.float()
        average([small], group)
        weight.copy_(small)


def makes_new_parameters(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.requires_grad:
                mean = parameter.detach().clone()
                average([mean], group)
                setattr(module, name, torch.nn.Parameter(mean))


def gathers_in_one_call(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for weight in trained(model):
        everywhere = [torch.empty_like(weight) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everywhere, weight, group=group)
        weight.copy_(torch.stack(everywhere).mean(0))


def gathers_everything(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    for weight in trained(model):
        everywhere = torch.zeros(dist.get_world_size(group), *weight.shape, dtype=weight.dtype)
        everywhere[dist.get_rank(group)] = weight
        dist.all_reduce(everywhere, group=group)
        weight.copy_(everywhere.mean(0))


def averages_frozen_weights_too(model, optimizer, batches, loss_fn, group=None):
    steps(model, optimizer, batches, loss_fn)
    average([parameter.data for parameter in model.parameters()], group)
