"""The hardware of this machine: processors and each rank's share of them, GPUs and their NCCL.

The zygote finds the GPUs (`find_gpus`); `placement` says which rank is on which.
Functions that need torch import it themselves: the notebook uses the others, and may do without torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import math
import os
import signal
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
FIND_PATIENCE = 60  # seconds for the CUDA driver to start; without persistence mode it takes a few a GPU


def processors() -> int:
    """Return the number of processors that this process may use at once."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, math.ceil(processor_quota() or count)))


def busyness() -> float:
    """Return how many tasks the machine had for each of its processors in the last minute; at least 1."""
    try:
        tasks = os.getloadavg()[0]  # of the whole machine, also in a container
    except OSError:
        return 1.0
    return max(1.0, tasks / (os.cpu_count() or 1))


@functools.cache  # in the zygote, for all ranks
def processor_quota() -> float | None:
    """Return how many processors' time a container is limited to; None without a limit.

    A process sees all processors of the machine even then, and one thread for each would be held up.
    """
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # "max": no limit
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # cgroups of version 1
        share = int((_CGROUP / "cpu/cpu.cfs_quota_us").read_text())
        return share / int((_CGROUP / "cpu/cpu.cfs_period_us").read_text()) if share > 0 else None
    return None


def threads_per_rank(world_size: int) -> int:
    """Return the threads for each rank's tensor operations: all ranks together fill the machine once."""
    return max(1, processors() // world_size)


def share_processors(ranks: int) -> None:
    """Let this thread, and those that it starts, share the processors with the other ranks here."""
    if ranks > processors():
        run_as_batch_job()


def run_as_batch_job() -> None:
    """Let no thread of this process, and of those it starts, interrupt a running one when it wakes.

    Threads of Gloo wake one another at each step of a collective. Where there are more of them than
    processors, a thread that woke would take the processor from the one that woke it, which still holds a
    lock that both need, and Gloo's loop would then ask for that lock again and again, for milliseconds.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a container may refuse it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def caches() -> dict[str, int]:
    """Return the bytes of a processor's data caches, from "L1" on; empty where the system does not say."""
    sizes = {}
    for folder in sorted(_CACHES.glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            if (folder / "type").read_text().strip() != "Instruction":
                kib = (folder / "size").read_text().strip().removesuffix("K")
                sizes[f"L{(folder / 'level').read_text().strip()}"] = 1024 * int(kib)
    return sizes


@dataclass(frozen=True)
class Gpus:
    """The GPUs that torch can use under one setting of CUDA_VISIBLE_DEVICES."""

    names: tuple[str, ...] = ()  # in the order of torch's device numbers
    nccl: tuple[int, ...] = ()  # version of the NCCL that torch loads; empty if this build has none
    trouble: str = ""  # why there are none, where that is known
    cuda: str = ""  # version of the CUDA that torch is built for

    @property
    def count(self) -> int:
        return len(self.names)


def find_gpus(visible: str | None) -> Gpus:
    """Ask the CUDA driver for the GPUs.

    A process that has started the driver cannot fork ranks any more: a short-lived child asks.

    Args:
        visible: the value of CUDA_VISIBLE_DEVICES; None when it is not set.
    """
    import torch

    if not torch.backends.cuda.is_built():
        return Gpus(trouble="this build of torch has no CUDA")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(writer, visible)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        return Gpus(trouble=f"the CUDA driver crashed or did not start within {FIND_PATIENCE} s")
    found = json.loads(answer)
    return Gpus(tuple(found["names"]), tuple(found["nccl"]), found["trouble"], found["cuda"])


def _answer(writer: int, visible: str | None) -> None:
    """Write what CUDA says, and end this process, the child."""
    try:
        signal.alarm(FIND_PATIENCE)  # ends this process
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
        os.write(writer, json.dumps(asdict(_ask_torch())).encode())
    finally:
        os._exit(0)


def _ask_torch() -> Gpus:
    import torch

    nccl, cuda = nccl_version(), torch.version.cuda or ""
    with warnings.catch_warnings(record=True) as caught:  # torch warns where it does not raise
        warnings.simplefilter("always")
        try:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            names = tuple(torch.cuda.get_device_name(index) for index in range(count))
        except RuntimeError as error:
            return Gpus((), nccl, str(error).splitlines()[0], cuda)
    said = " ".join(str(warning.message).split(" (Triggered internally")[0] for warning in caught)
    return Gpus(names, nccl, "" if names else said, cuda)


def nccl_version() -> tuple[int, ...]:
    """Return the version of the NCCL that torch has loaded into this process; empty if torch has none.

    `torch.cuda.nccl.version()` is the one that torch was compiled with, even where a newer one is installed.
    """
    import torch

    if not torch.distributed.is_nccl_available():
        return ()
    code = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2", os.RTLD_NOLOAD).ncclGetVersion(ctypes.byref(code))
    except OSError:  # it is part of torch's own library
        return tuple(torch.cuda.nccl.version()[:3])
    return code.value // 10_000, code.value // 100 % 100, code.value % 100


def dotted(version: tuple[int, ...]) -> str:
    """Write a version as people do."""
    return ".".join(map(str, version))
