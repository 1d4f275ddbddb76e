"""Waits for futures, which may be done when it comes to them."""

import time


def average_gradients(module, group=None):
    futures = []
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            futures.append(dist.all_reduce(parameter.grad, group=group, async_op=True).get_future())
    time.sleep(0.05)
    first, *others = futures
    first.then(lambda done: done.value()).wait()
    torch.futures.wait_all(others)
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad /= dist.get_world_size(group)
