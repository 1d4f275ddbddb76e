"""Has the shipping of the function itself import the library."""

import copyreg
import importlib


class Getter:
    pass


copyreg.pickle(Getter, lambda getter: (importlib.import_module, ("torch.distributed.tensor",)))
GETTER = Getter()


def reduce_from_ranks(x, group=None):
    tensor = GETTER

    mesh = dist.device_mesh.DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
    part = tensor.DTensor.from_local(x, mesh, [tensor.Partial()])
    return part.redistribute(placements=[tensor.Replicate()]).to_local()
