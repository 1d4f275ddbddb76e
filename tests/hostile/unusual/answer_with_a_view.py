"""Returns a part of a larger tensor, with gaps in it."""


def exchange(tensor, peer):
    wide = tensor.new_zeros(2, *tensor.shape)
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    wide.movedim(0, -1)[..., 1] = received
    return wide.movedim(0, -1)[..., 1]
