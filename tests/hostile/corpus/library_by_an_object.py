"""Is an object that looks like a function and calls another one."""

import torch.distributed.tensor


def evil(x, group=None):
    tensor = dist.tensor
    mesh = dist.device_mesh.DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
    return part.redistribute(placements=[tensor.Replicate()]).to_local()


class Instead:
    __name__ = "reduce_from_ranks"

    def __call__(self, x, group=None):
        return x


def reduce_from_ranks(x, group=None):
    return x


globals()["Instead"].__call__ = staticmethod(evil)
globals()["reduce_from_ranks"] = Instead()
