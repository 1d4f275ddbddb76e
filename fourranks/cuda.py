"""What a rank does because of GPUs. `rank` calls it, after the fork; the zygote and the notebook never do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d

NCCL_PATIENCE = timedelta(days=365)  # a rank may compute for hours while the others wait for it

# How NCCL and torch's watchdog over it behave in a rank. Where a training job had better die at once, a rank
# is worth keeping: its variables, and the explanation of what went wrong, are with it. Names as in torch's
# ProcessGroupNCCL.hpp (2.13).
NCCL_SETTINGS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # by default the watchdog ends the process after a failed call
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",  # and when the reader's own kernel has failed
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # and when the watchdog itself has been stuck for 8 minutes
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",  # no files in /tmp
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",  # the watchdog sleeps 4 times as long after a failed call
}


def extend_nccl_timeout() -> None:
    """Keep torch from counting a call of NCCL as failed after its default of ten minutes."""
    distributed_c10d.default_pg_nccl_timeout = NCCL_PATIENCE


def settle(device: torch.device) -> None:
    """Make the rank's GPU the one that `torch.cuda` and NCCL use; raises what CUDA says if it cannot."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def allocated_bytes(device: torch.device) -> int:
    """GPU memory that this rank's tensors take. Not for the listener: it may wait for a running kernel."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def refuse_gpu_messages(group_class: type) -> None:
    """Have send and recv of a Gloo group raise on GPU tensors.

    Gloo's collectives take GPU tensors through pinned memory of the host. Its send and recv do not look where
    the tensor is and hand the address to a socket (ProcessGroupGloo.cpp).
    """
    for name, word in (("send", "send"), ("recv", "receive"), ("recv_anysource", "receive")):
        setattr(group_class, name, _for_cpu_only(getattr(group_class, name), word))


def _for_cpu_only(method: Any, word: str) -> Any:
    def checked(self: Any, tensors: list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        if tensors[0].device.type != "cpu":
            raise ValueError(
                f"Gloo cannot {word} a tensor that is on {tensors[0].device}; its collectives can take one. "
                "Send x.cpu(), receive into a tensor on the CPU and move that with .to(device), or use NCCL."
            )
        return method(self, tensors, *args, **kwargs)

    return checked
