"""Returns the tensor as an nn.Parameter."""


def exchange(tensor, peer):
    from torch import nn

    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return nn.Parameter(received, requires_grad=False)
