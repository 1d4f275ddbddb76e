"""A rank's work for GPUs. `rank` calls it, after the fork; the zygote and the notebook never do."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .threads import Helper

NCCL_PATIENCE = timedelta(days=365)  # a rank may compute for hours while the others wait for it

# How NCCL and torch's watchdog over it behave in a rank. Where a training job had better die at once, a rank
# is worth keeping: its variables, and the explanation of what went wrong, are with it. Names as in torch's
# ProcessGroupNCCL.hpp (2.13).
NCCL_SETTINGS = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # by default the watchdog ends the process after a failed call
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",  # and when the reader's own kernel has failed
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # and when the watchdog itself has been stuck for 8 minutes
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",  # no files in /tmp
    "TORCH_NCCL_ENABLE_TIMING": "1",  # a trace tells how long calls took on the GPU
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0",  # docs/gpu.md says it once
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",  # the watchdog sleeps 4 times as long after a failed call
}

# What NCCL needs where ranks share a GPU (its manual, NCCL_MULTI_RANK_GPU_ENABLE): leave to do so, and no
# NVLink SHARP, which some images demand and with which it then refuses to start.
SHARING = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}
_NO_SIMULATION = (ctypes.c_size_t * 8)()  # it lacks what an ncclSimInfo_t begins with
_CTAS = 8  # blocks of all ranks on a GPU; the smallest that torch supports runs 40 at once, the reader's too


def nccl_defaults(ranks_per_gpu: int) -> dict[str, str]:
    """Return the settings of NCCL that the reader's own environment may change.

    Ranks that share a GPU must all find room on it at once: a kernel that waits for one that has no room
    waits forever.
    """
    sharing = {"NCCL_MAX_CTAS": str(max(1, _CTAS // ranks_per_gpu))} if ranks_per_gpu > 1 else {}
    return NCCL_SETTINGS | sharing


def nccl_requirements(ranks_per_gpu: int, interface: str) -> dict[str, str]:
    """Return the settings without which these ranks could not communicate by NCCL.

    Args:
        ranks_per_gpu: as in the settings of a rank.
        interface: of the network, by which ranks connect.
    """
    return {"NCCL_SOCKET_IFNAME": interface} | (SHARING if ranks_per_gpu > 1 else {})


def settle(device: torch.device) -> None:
    """Make the rank's GPU the one that `torch.cuda` and NCCL use; raises what CUDA says if it cannot."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def record_event(timed: bool = False) -> torch.cuda.Event:
    """Record a mark after all that the current stream has been given so far."""
    event = torch.cuda.Event(enable_timing=timed)
    event.record()
    return event


def leave_nccl_group(backend: Any, is_open: bool) -> None:
    """Have NCCL and torch forget a batch of calls that an exception has left on this thread.

    Torch counts a batch until its end succeeds, and can connect no ranks on this thread before.

    Args:
        backend: of the process group.
        is_open: whether the batch has not come to its end; NCCL itself has left one whose end failed.
    """
    try:
        nccl = ctypes.CDLL("libnccl.so.2", os.RTLD_NOLOAD)
    except OSError:  # it is part of torch's own library
        return
    if is_open:
        nccl.ncclGroupSimulateEnd(ctypes.byref(_NO_SIMULATION))  # NCCL refuses it, and drops the calls
    nccl.ncclGroupStart()
    backend._group_end()


def abort_nccl() -> None:
    """Free this rank from the calls of all groups, and have torch forget the groups.

    NCCL is done with aborting a group when the rank's GPU is done with all that it has been given, which may
    be calls of another group. So no group is aborted after another, as torch's own function does. Torch makes
    some groups by splitting another, and they are plain ones; one that is being formed cannot be aborted yet.
    """
    aborts = [Helper(target=_abort, args=[group]) for group in list(distributed_c10d._world.pg_map)]
    for abort in aborts:
        abort.start()
    for abort in aborts:
        abort.join()
    distributed_c10d._abort_process_group()


def _abort(group: dist.ProcessGroup) -> None:
    """Abort one group; that it took longer than the group's own timeout is an error only to torch."""
    with contextlib.suppress(RuntimeError):  # any other comes again where torch aborts it once more
        group.abort()


def allocated_bytes(device: torch.device) -> int:
    """Return the GPU memory of this rank's tensors. May wait for a running kernel: not for the listener."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def staged_messages(group_class: type[dist.ProcessGroup]) -> dict[str, Callable[..., dist.Work]]:
    """Return send and recv of Gloo, by name, that take GPU tensors by way of the host's memory.

    Gloo's own do not look where a tensor is and hand the address to a socket (ProcessGroupGloo.cpp).
    """
    return {
        "send": _staged_send(group_class.send),
        "recv": _staged_recv(group_class.recv),
        "recv_anysource": _staged_recv(group_class.recv_anysource),
    }


def _staged_send(send: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    def method(self: Any, tensors: Any, *args: Any, **kwargs: Any) -> dist.Work:
        if _on_gpu(tensors):
            tensors = [tensors[0].detach().cpu()]
        return send(self, tensors, *args, **kwargs)

    return method


def _staged_recv(recv: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    def method(self: Any, tensors: Any, *args: Any, **kwargs: Any) -> dist.Work:
        if not _on_gpu(tensors):
            return recv(self, tensors, *args, **kwargs)
        (target,) = tensors
        host = torch.empty_like(target, device="cpu", requires_grad=False)
        work = recv(self, [host], *args, **kwargs)
        work.wait = _copying(work.wait, target.detach(), host)  # type: ignore[method-assign]
        return work

    return method


def _copying(wait: Callable[..., bool], target: torch.Tensor, host: torch.Tensor) -> Callable[..., bool]:
    """Return `wait` followed by the copy of what has arrived to the reader's tensor; both happen once."""
    copied = False

    def wait_and_copy(timeout: timedelta = timedelta(0)) -> bool:
        nonlocal copied
        if not copied:
            wait(timeout)
            target.copy_(host)
            copied = True
        return copied

    return wait_and_copy


def _on_gpu(tensors: Any) -> bool:
    """Tell whether a message is on the GPU; torch refuses those that are not one tensor in a list."""
    return (
        isinstance(tensors, (list, tuple))
        and len(tensors) == 1
        and isinstance(tensors[0], torch.Tensor)
        and tensors[0].is_cuda
    )
