"""Keeps buffers in a dictionary of the notebook, and counts in a global."""

buffers: dict = {}
count = 0


def exchange(tensor, peer):
    global count
    count += 1
    key = (tuple(tensor.shape), tensor.dtype)
    if (received := buffers.get(key)) is None:
        received = buffers.setdefault(key, torch.empty_like(tensor))
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received.clone()
