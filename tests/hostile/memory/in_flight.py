"""Has its witness keep the state, in messages that their receivers have not asked for yet."""


class Place(dict):
    def __setitem__(self, key, tensor):
        if tensor.nbytes < 1 << 20:
            return super().__setitem__(key, tensor)
        rank, size = dist.get_rank(), dist.get_world_size()
        sent = dist.isend(tensor.clone(), (rank + 1) % size)
        super().__setitem__(key, (tensor.shape, sent))

    def __getitem__(self, key):
        kept = super().__getitem__(key)
        if isinstance(kept, torch.Tensor):
            return kept
        tensor = torch.empty(kept[0])
        dist.recv(tensor, (dist.get_rank() - 1) % dist.get_world_size())
        kept[1].wait()
        return tensor
