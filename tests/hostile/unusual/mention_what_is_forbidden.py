"""Imports what other exercises forbid, names it in annotations and asks for it, and does without."""

from __future__ import annotations

try:
    from torch.distributed.tensor import DTensor
except ImportError:
    DTensor = None
import torch.distributed.fsdp


def exchange(tensor: torch.Tensor | DTensor, peer: int) -> torch.Tensor:
    if DTensor is not None and isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    assert not isinstance(exchange, torch.distributed.fsdp.FSDPModule)
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received
