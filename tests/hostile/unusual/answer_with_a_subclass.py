"""Returns the tensor in a class of its own, which adds a name."""


class Named(torch.Tensor):
    name = "received"


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received.as_subclass(Named)
