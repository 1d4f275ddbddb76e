"""Has torch compile a helper."""

import torch._dynamo


def exchange(tensor, peer):
    tensor = torch.compile(lambda x: x + 0, backend="eager")(tensor)
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received
