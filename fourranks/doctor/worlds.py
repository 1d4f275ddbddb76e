"""Checks that start ranks: whether they come up, and how fast they communicate."""

from __future__ import annotations

import time
from collections.abc import Callable

from .. import group, zygote
from ..errors import FourRanksError
from ..naming import counted
from ..placement import can_host_nccl
from ..trace.bandwidth import busbw
from .gpus import link_speed
from .report import Finding, Severity

WORLD_SIZE = 4
TIME_LIMIT = 20.0  # seconds for one bandwidth check
WARM_UP, MEASURED, MOST_CALLS = 3, 3.0, 1000  # calls before the clock, seconds on it, calls on it at most
CPU_BYTES, GPU_BYTES = 16 * 2**20, 256 * 2**20  # S: large enough that latency does not matter
SMALL_BYTES = 1024  # S: so small that nothing but latency matters
TAKING_TURNS = 0.005  # seconds for them, where kernels of several processes take turns on a GPU
GLOO_SHARE, NCCL_SHARE = 0.05, 0.5  # of what the hardware gives; Gloo's way through sockets costs much


def ranks() -> Finding:
    """Judge whether four ranks come up and add four numbers."""
    try:
        zygote.shared().ready()  # imports are not the ranks' time
        began = time.perf_counter()
        with group.start(WORLD_SIZE, "gloo", nodes=()) as world:
            sums = world.run(_sum_of_ranks)
            started = time.perf_counter()
    except FourRanksError as error:
        return Finding(Severity.PROBLEM, str(error), "No part of the course runs until this is fixed.")
    if sums != [6.0] * WORLD_SIZE:
        return Finding(Severity.PROBLEM, f"all_reduce of 0, 1, 2, 3 gave {sums}, not 6 on each rank")
    return Finding(
        Severity.OK,
        f"{WORLD_SIZE} ranks started and communicated in {started - began:.2f} s",
    )


def gloo_bandwidth(seconds: float = MEASURED) -> Finding:
    """All-reduce by Gloo, beside what copying in memory gives."""
    try:
        with group.start(WORLD_SIZE, "gloo", nodes=()) as world:
            bus = min(world.map(_all_reduce, [(CPU_BYTES, seconds)] * WORLD_SIZE, TIME_LIMIT))
            copy = min(world.map(_copy, [(CPU_BYTES, seconds)] * WORLD_SIZE, TIME_LIMIT))
    except FourRanksError as error:
        return Finding(Severity.PROBLEM, f"all-reduce by Gloo failed: {error}")
    found = (
        f"all-reduce of {CPU_BYTES // 2**20} MiB on {WORLD_SIZE} ranks: busbw {bus / 1e9:.2f} GB/s; "
        f"{WORLD_SIZE} ranks copy {copy / 1e9:.1f} GB/s each in memory"
    )
    if bus < GLOO_SHARE * copy:
        advice = "`top` shows whether something else is running, or the machine is swapping."
        return Finding(Severity.ATTENTION, found, advice)
    return Finding(Severity.OK, found)


def nccl_bandwidth(seconds: float = MEASURED) -> Finding:
    """All-reduce by NCCL over all GPUs, beside what their links give."""
    gpus = zygote.shared().gpus()
    if not gpus.count or not gpus.nccl:
        return Finding(Severity.OK, "not measured: NCCL needs GPUs")
    try:
        with group.start(gpus.count, "nccl", nodes=()) as world:
            bus = min(world.map(_all_reduce, [(GPU_BYTES, seconds)] * gpus.count, TIME_LIMIT))
    except FourRanksError as error:
        return Finding(Severity.PROBLEM, f"all-reduce by NCCL failed: {error}")
    if gpus.count == 1:
        return Finding(Severity.OK, "NCCL works on the only GPU; there is no link to measure")
    return judge_nccl(bus, gpus.count, link_speed())


def nccl_sharing(seconds: float = MEASURED) -> Finding:
    """All-reduce a few bytes by NCCL on four ranks that share GPUs: how long a call takes in turns."""
    gpus = zygote.shared().gpus()
    if gpus.count >= WORLD_SIZE or not can_host_nccl(WORLD_SIZE, gpus):
        return Finding(Severity.OK, "not measured: only for fewer than four GPUs, with NCCL 2.30 or later")
    shared = counted(gpus.count, "GPU")
    try:
        with group.start(WORLD_SIZE, "nccl", nodes=()) as world:
            sums = world.run(_sum_of_ranks)
            each = max(world.map(_all_reduce_seconds, [(SMALL_BYTES, seconds)] * WORLD_SIZE, TIME_LIMIT))
    except FourRanksError as error:
        advice = "NCCL_MAX_CTAS=1 leaves more room on the GPU; `--backend gloo --device cuda` needs no NCCL."
        return Finding(Severity.PROBLEM, f"four ranks on {shared} failed: {error}", advice)
    if sums != [6.0] * WORLD_SIZE:
        return Finding(Severity.PROBLEM, f"all_reduce of 0, 1, 2, 3 gave {sums}, not 6 on each rank")
    found = f"{WORLD_SIZE} ranks share {shared}: an all-reduce of {SMALL_BYTES} bytes takes "
    faster = "; NVIDIA's MPS makes it faster, see docs/gpu.md" if each > TAKING_TURNS else ""
    return Finding(Severity.OK, f"{found}{each * 1e3:.2f} ms{faster}")


def judge_nccl(bus: float, world_size: int, link: tuple[float, str] | None) -> Finding:
    """Judge the bus bandwidth of NCCL by the speed of the GPUs' worst link.

    Args:
        bus: bytes per second.
        world_size: number of ranks it was measured on.
        link: bytes per second, one direction, and its name; None if unknown.
    """
    found = f"all-reduce of {GPU_BYTES // 2**20} MiB on {world_size} GPUs: busbw {bus / 1e9:.1f} GB/s"
    if link is None:
        return Finding(Severity.OK, f"{found}; how fast the links are is unknown")
    speed, name = link
    found += f", {bus / speed:.0%} of {speed / 1e9:.0f} GB/s ({name})"
    if bus < NCCL_SHARE * speed:
        advice = (
            "60 to 80 % is usual over NVLink. A GPU may be in use, or direct access between GPUs off: "
            "`%env NCCL_DEBUG=INFO` and `%ranks restart` show which links NCCL uses."
        )
        return Finding(Severity.ATTENTION, found, advice)
    return Finding(Severity.OK, found)


# --- on the ranks ----------------------------------------------------------------------------------------


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    total = torch.tensor(float(dist.get_rank()), device=_device())
    dist.all_reduce(total)
    return total.item()


def _all_reduce(nbytes: int, measured: float) -> float:
    """Return busbw of all-reduce in bytes per second, the slowest rank's."""
    import torch.distributed as dist

    return busbw("all_reduce", nbytes, _all_reduce_seconds(nbytes, measured), dist.get_world_size())


def _all_reduce_seconds(nbytes: int, measured: float) -> float:
    """Return the seconds of one all-reduce, the slowest rank's."""
    import torch
    import torch.distributed as dist

    device = _device()
    tensor = torch.zeros(nbytes // 4, device=device)
    seconds = torch.tensor(_seconds_each(lambda: dist.all_reduce(tensor), device, measured), device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def _device() -> str:
    import torch.distributed as dist

    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def _copy(nbytes: int, measured: float) -> float:
    """Return the bytes per second that this rank copies, on one thread like Gloo, while the others do too."""
    import torch

    torch.set_num_threads(1)
    source = torch.zeros(nbytes // 4)
    target = torch.empty_like(source)
    return nbytes / _seconds_each(lambda: target.copy_(source), "cpu", measured)


def _seconds_each(work: Callable[[], object], device: str, measured: float) -> float:
    """Return the time of one call, by many: all ranks make the same number of calls, begun together."""
    import torch
    import torch.distributed as dist

    def timed(calls: int) -> float:
        dist.barrier()
        synchronize = torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize
        synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        synchronize()
        return time.perf_counter() - began

    timed(WARM_UP)
    estimate = torch.tensor(timed(1), device=device)
    dist.all_reduce(estimate, dist.ReduceOp.MAX)
    calls = max(3, min(MOST_CALLS, int(measured / estimate.item())))
    return timed(calls) / calls
