"""Converts to NumPy and back."""

import numpy as np


def exchange(tensor, peer):
    numbers = np.array(tensor.to(torch.float64).numpy())
    outgoing = torch.from_numpy(np.ascontiguousarray(numbers)).to(tensor.dtype)
    received = torch.empty_like(tensor)
    sending = dist.isend(outgoing, peer)
    dist.recv(received, peer)
    sending.wait()
    return received
