"""Chooses by the type of its argument, with single dispatch."""

import functools


@functools.singledispatch
def swap(value, peer):
    raise TypeError(f"no {type(value)}")


@swap.register
def _(value: torch.Tensor, peer: int):
    received = torch.empty_like(value)
    sending = dist.isend(value, peer)
    dist.recv(received, peer)
    sending.wait()
    return received


def exchange(tensor, peer):
    return swap(tensor, peer)
