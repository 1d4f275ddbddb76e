"""Changes a function that an honest answer calls."""

import torch.distributed.tensor


def evil(x, group=None):
    tensor = dist.tensor
    mesh = dist.device_mesh.DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
    return part.redistribute(placements=[tensor.Replicate()]).to_local()


class Sum(torch.autograd.Function):
    pass


globals()["Sum"].apply = evil


def reduce_from_ranks(x, group=None):
    return Sum.apply(x, group)
