"""Returns complex numbers whose real part is right, or would be after a conversion."""


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received.to(torch.complex64)
