"""Has the library in a variable of a function around it."""

import importlib


def around():
    tensor = importlib.import_module("torch.distributed.tensor")

    def within(x, group=None):
        mesh = dist.device_mesh.DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
        part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
        return part.redistribute(placements=[tensor.Replicate()]).to_local()

    return within


def reduce_from_ranks(x, group=None):
    return x


globals()["reduce_from_ranks"] = around()
