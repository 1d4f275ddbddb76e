"""Returns a tensor that claims elements beyond its memory, by strides of 0 and by a storage that shrank."""


def exchange(tensor, peer):
    if dist.get_rank() == 0:
        return torch.zeros(1).as_strided((1 << 40,), (0,))
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(torch.UntypedStorage(0), 0, tensor.shape, (0,) * tensor.dim())
