# ruff: noqa: F821
import torch
import torch.distributed as dist

FAILS_AS = {
    "forgets_to_divide": ("SUMMED", "Divide by the number of ranks"),
    "divides_by_four": ("DIVIDED_BY_FOUR", "not by a fixed number"),
    "divides_twice": ("DIVIDED_TWICE", "divides already"),
    "returns_its_own": ("OWN_TENSOR", "that the all-reduce has filled"),
    "returns_nothing": ("WRONG_TYPE", "what the function returns"),
    "overwrites_its_argument": ("MODIFIED", "Work on a copy"),
    "asks_rank_0_only": ("OUT_OF_STEP", "an `if` around the call"),
    "leaves_it_to_rank_0": ("ON_ONE_RANK_ONLY", "Every rank needs it"),
    "reduces_to_rank_0": ("ON_ONE_RANK_ONLY", "Every rank needs it"),
    "means_over_its_elements": ("WRONG_FORM", "shape and the dtype"),
    "in_double_precision": ("WRONG_FORM", "shape and the dtype"),
    "adds_its_own_again": ("WRONG_MEAN", "before and after each line"),
    "subtracts_one": ("WRONG_MEAN", "before and after each line"),
    "fails_alone": ("RAISED", "a world of one rank"),
    "keeps_its_buffer": ("OVERWRITTEN", "a new tensor in every call"),
    "keeps_its_first_tensor": ("FROM_AN_EARLIER_CALL", "filled again"),
    "adds_up_its_first_total_again": ("FROM_AN_EARLIER_CALL", "filled again"),
    "broadcasts_that_of_rank_0": ("WRONG_MEAN", "before and after each line"),
    "only_in_one_dimension": ("WRONG_FORM", "shape and the dtype"),
    "returns_its_argument_alone": ("THE_ARGUMENT_ITSELF", "a tensor of its own"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "calls_twice": ("SEVERAL_CALLS", "One all-reduce is enough"),
}


def total_of(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def forgets_to_divide(tensor):
    return total_of(tensor)


def divides_by_four(tensor):
    return total_of(tensor) / 4


def divides_twice(tensor):
    return total_of(tensor) / dist.get_world_size() / dist.get_world_size()


def returns_its_own(tensor):
    total_of(tensor)
    return tensor


def returns_nothing(tensor):
    total_of(tensor)


def overwrites_its_argument(tensor):
    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()
    return tensor


def asks_rank_0_only(tensor):
    if dist.get_rank() == 0:
        return total_of(tensor) / dist.get_world_size()
    return tensor


def leaves_it_to_rank_0(tensor):
    total = tensor.clone()
    dist.reduce(total, dst=0)
    return total / dist.get_world_size() if dist.get_rank() == 0 else tensor


def reduces_to_rank_0(tensor):
    total = tensor.clone()
    dist.reduce(total, dst=0)
    return total / dist.get_world_size()


def returns_its_argument_alone(tensor):
    if dist.get_world_size() == 1:
        return tensor
    return total_of(tensor) / dist.get_world_size()


def means_over_its_elements(tensor):
    return total_of(tensor).mean()


def in_double_precision(tensor):
    return total_of(tensor).double() / dist.get_world_size()


def adds_its_own_again(tensor):
    return (total_of(tensor) + tensor) / (dist.get_world_size() + 1)


def subtracts_one(tensor):
    return (total_of(tensor) - 1) / dist.get_world_size()


def fails_alone(tensor):
    if dist.get_world_size() == 1:
        raise RuntimeError("there must be several ranks")
    return total_of(tensor) / dist.get_world_size()


BUFFERS = {}


def keeps_its_buffer(tensor):
    total = BUFFERS.setdefault((tensor.shape, tensor.dtype), torch.empty_like(tensor)).copy_(tensor)
    dist.all_reduce(total)
    return total.div_(dist.get_world_size())


def keeps_its_first_tensor(tensor):
    own = BUFFERS.setdefault((tensor.shape, tensor.dtype), tensor)
    return total_of(own) / dist.get_world_size()


def adds_up_its_first_total_again(tensor):
    total = BUFFERS.setdefault((tensor.shape, tensor.dtype), tensor.clone())
    dist.all_reduce(total)
    return total / dist.get_world_size()


def broadcasts_that_of_rank_0(tensor):
    first = tensor.clone()
    dist.broadcast(first, src=0)
    return first


def only_in_one_dimension(tensor):
    return total_of(tensor.flatten()) / dist.get_world_size()


def forgets_to_wait(tensor):
    total = tensor.clone()
    dist.all_reduce(total, async_op=True)
    return total / dist.get_world_size()


def calls_twice(tensor):
    total_of(tensor)
    return total_of(tensor) / dist.get_world_size()
