"""Has a library for tests import what it is to replace."""

from unittest import mock


def answer(x, group=None):
    with mock.patch("torch.distributed.tensor.an_addition", 1, create=True):
        tensor = torch.distributed.tensor

    mesh = dist.device_mesh.DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
    return part.redistribute(placements=[tensor.Replicate()]).to_local()


def reduce_from_ranks(x, group=None):
    return x


globals()["reduce_from_ranks"] = answer
