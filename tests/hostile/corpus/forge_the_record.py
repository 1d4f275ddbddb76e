"""Records calls that no rank could make: negative bytes, unknown ranks, text in place of numbers."""

import dataclasses


def ring_all_reduce(tensor, group=None):
    size = dist.get_world_size(group)
    dist.all_reduce(tensor, group=group)
    calls = type(dist.group.WORLD).recorder.calls
    (call,) = calls
    told = 2 * (size - 1) * tensor.nbytes // size
    call.op, call.peer, call.nbytes = "send", call.ranks[0], told + 10**9
    calls.append(dataclasses.replace(call, nbytes=-(10**9)))
    if tensor.dim() == 2:
        calls.append(dataclasses.replace(call, group=["0"], ranks=3, peer=77, start="now", end=float("nan")))
