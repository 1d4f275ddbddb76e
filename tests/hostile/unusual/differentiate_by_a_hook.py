"""Sums gradients in a hook of a tensor, without an autograd function."""


def copy_to_ranks(x, group=None):
    copy = x.view_as(x)

    def summed(gradient):
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    if copy.requires_grad:
        copy.register_hook(summed)
    return copy
