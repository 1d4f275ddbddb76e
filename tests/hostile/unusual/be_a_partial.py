"""Is a partial of a function with more arguments."""

import functools


def swap(tensor, peer, *, tag=0, group=None):
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer, group, tag)
    dist.recv(received, peer, group, tag)
    sending.wait()
    return received


exchange = functools.partial(swap, tag=7)
