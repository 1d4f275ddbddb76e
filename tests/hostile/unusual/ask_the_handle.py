"""Asks the handle whether the sum is there, where others wait for it."""


def average(tensor):
    total = tensor.clone()
    work = dist.all_reduce(total, async_op=True)
    while not work.is_completed():
        pass
    return total / dist.get_world_size()
