"""Returns the right numbers, in a tensor whose elements lie backwards and apart in a larger one."""


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    apart = torch.full((2 * received.numel() + 3,), 7, dtype=received.dtype)
    view = apart.as_strided(received.shape, [2 * stride for stride in received.stride()], 3)
    view.copy_(received)
    return view
