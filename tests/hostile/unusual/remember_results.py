"""Has helpers that remember their results, one of them recursive."""

import functools


@functools.cache
def is_even(number):
    return number == 0 or not is_even(number - 1)


@functools.cache
def order(me, peer):
    return ("send", "recv") if is_even(min(me, peer)) == (me < peer) else ("recv", "send")


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    buffers = {"send": tensor, "recv": received}
    for verb in order(dist.get_rank(), peer):
        getattr(dist, verb)(buffers[verb], peer)
    return received
