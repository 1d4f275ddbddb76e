# ruff: noqa: F821
import torch
import torch.distributed as dist

FAILS_AS = {
    "adds_up": ("ADDED_UP", "ReduceOp.MAX"),
    "takes_the_smallest": ("SMALLEST", "asks for the largest"),
    "returns_its_own": ("OWN_NUMBER", "that the all-reduce has filled"),
    "returns_the_tensor": ("NOT_A_NUMBER", ".item()"),
    "in_single_precision": ("LOST_DIGITS", "dtype=torch.float64"),
    "begins_with_zero": ("NEVER_BELOW_ZERO", "not with 0"),
    "asks_rank_0_only": ("OUT_OF_STEP", "an `if` around the call"),
    "reduces_to_rank_0": ("ON_ONE_RANK_ONLY", "Every rank needs it"),
    "takes_the_mean": ("WRONG_NUMBER", "for two ranks"),
    "keeps_the_largest_so_far": ("FROM_AN_EARLIER_CALL", "filled again"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "calls_twice": ("SEVERAL_CALLS", "One all-reduce is enough"),
    "gathers_objects": ("SEVERAL_CALLS", "all_gather_object"),
}


def reduced(value, op, dtype=torch.float64):
    tensor = torch.tensor(value, dtype=dtype)
    dist.all_reduce(tensor, op)
    return tensor


def adds_up(value):
    return reduced(value, dist.ReduceOp.SUM).item()


def takes_the_smallest(value):
    return reduced(value, dist.ReduceOp.MIN).item()


def returns_its_own(value):
    reduced(value, dist.ReduceOp.MAX)
    return value


def returns_the_tensor(value):
    return reduced(value, dist.ReduceOp.MAX)


def in_single_precision(value):
    return reduced(value, dist.ReduceOp.MAX, torch.float32).item()


def begins_with_zero(value):
    return reduced(max(value, 0.0), dist.ReduceOp.MAX).item()


def asks_rank_0_only(value):
    return reduced(value, dist.ReduceOp.MAX).item() if dist.get_rank() == 0 else value


def reduces_to_rank_0(value):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.reduce(tensor, dst=0, op=dist.ReduceOp.MAX)
    return tensor.item()


def takes_the_mean(value):
    return reduced(value, dist.ReduceOp.SUM).item() / dist.get_world_size() - 5.0


def keeps_the_largest_so_far(value, seen=[]):  # noqa: B006
    seen.append(value)
    return reduced(max(seen), dist.ReduceOp.MAX).item()


def forgets_to_wait(value):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
    return tensor.item()


def calls_twice(value):
    return reduced(reduced(value, dist.ReduceOp.MAX).item(), dist.ReduceOp.MAX).item()


def gathers_objects(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return max(values)
