"""The hardware of this machine, and each rank's share of it: threads, a device, a backend.

The zygote finds the GPUs (`find_gpus`); `place` decides, from what was found and what the reader asked for.
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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import StartError

BACKEND_NAMES = {"gloo": "Gloo", "nccl": "NCCL"}  # as people write them
BACKEND_VARIABLE = "FOURRANKS_BACKEND"  # of the environment: what "auto" stands for
SHARING_NCCL = (2, 30)  # the first NCCL with NCCL_MULTI_RANK_GPU_ENABLE
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


@dataclass(frozen=True)
class Placement:
    """How the ranks of a world talk, and what each computes on.

    Attributes:
        backend: "gloo" or "nccl".
        devices: of each rank, as torch names them: "cpu" or "cuda:1".
        gpu_names: of each rank; empty strings on CPUs.
        nodes: name of each rank's node, those of one node in a row; empty for this machine alone.
    """

    backend: str
    devices: tuple[str, ...]
    gpu_names: tuple[str, ...]
    nodes: tuple[str, ...] = ()

    @property
    def on_gpus(self) -> bool:
        """Whether the ranks compute on GPUs."""
        return self.devices[0] != "cpu"

    def node_of(self, rank: int) -> str:
        """Return the name of a rank's node; empty for this machine."""
        return self.nodes[rank] if self.nodes else ""

    @property
    def gpu_count(self) -> int:
        """Number of GPUs that the ranks are on."""
        gpus = {(self.node_of(rank), device) for rank, device in enumerate(self.devices)}
        return len(gpus) if self.on_gpus else 0

    @property
    def ranks_per_gpu(self) -> int:
        """Number of ranks on the GPU that has most of them; 0 on CPUs."""
        return math.ceil(len(self.devices) / self.gpu_count) if self.gpu_count else 0


def preferred_backend(backend: str, device: str) -> str:
    """Return the backend to ask for: where the reader leaves the choice, the environment may make it."""
    if (backend, device) in (("auto", "auto"), ("auto", "cuda")):
        return os.environ.get(BACKEND_VARIABLE, backend)
    return backend


def can_host_nccl(world_size: int, gpus: Gpus) -> bool:
    """Return whether so many ranks can communicate by NCCL: with a GPU for each, or sharing them."""
    return bool(gpus.nccl) and (gpus.count >= world_size or (gpus.count > 0 and gpus.nccl >= SHARING_NCCL))


def place(world_size: int, backend: str, device: str, find: Callable[[], Gpus]) -> Placement:
    """Choose a backend for a world and a device for each of its ranks.

    Ranks can share GPUs with Gloo, and from NCCL 2.30 on with NCCL: rank i is on GPU i modulo their number.

    Args:
        world_size: number of ranks.
        backend: "gloo", "nccl", or "auto": NCCL when there is a GPU for each rank, else Gloo. (Ranks that
            share a GPU take turns on it: a small call of NCCL took 20 times as long as one of Gloo there, see
            benchmarks/gpu.md. NVIDIA's MPS makes it fast, and lets an error of one rank end all.)
        device: "cpu", "cuda", or "auto": GPUs with NCCL, CPUs with Gloo.
        find: finds the GPUs; called only when they matter.

    Raises:
        StartError: the two do not go together, or GPUs are lacking; the message says what to ask for.
    """
    _check("backend", backend, "auto", "gloo", "nccl")
    _check("device", device, "auto", "cpu", "cuda")
    if (backend, device) == ("nccl", "cpu"):
        raise StartError(
            "NCCL moves tensors between GPUs only, so it does not go with --device cpu. "
            "Ask for --backend gloo, or leave --device away."
        )
    if takes_cpus(backend, device):
        return _on_cpus(world_size)
    gpus = find()
    if backend == "nccl":
        if not can_host_nccl(world_size, gpus):
            raise StartError(_lack_for_nccl(world_size, gpus))
        return _on_gpus("nccl", world_size, gpus)
    if backend == "auto" and gpus.nccl and gpus.count >= world_size:
        return _on_gpus("nccl", world_size, gpus)
    if device == "auto":
        return _on_cpus(world_size)
    if not gpus.count:
        raise StartError(f"--device cuda needs a GPU, and {_have(gpus)}. Without it the ranks use the CPU.")
    return _on_gpus("gloo", world_size, gpus)


def takes_cpus(backend: str, device: str) -> bool:
    """Tell whether ranks compute on CPUs whatever GPUs there are."""
    return device == "cpu" or (backend, device) == ("gloo", "auto")


def _check(what: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise StartError(f"There is no {what} {value!r}; choose {', '.join(choices[:-1])} or {choices[-1]}.")


def _on_cpus(world_size: int) -> Placement:
    return Placement("gloo", ("cpu",) * world_size, ("",) * world_size)


def _on_gpus(backend: str, world_size: int, gpus: Gpus) -> Placement:
    indices = [rank % gpus.count for rank in range(world_size)]
    return Placement(
        backend,
        tuple(f"cuda:{index}" for index in indices),
        tuple(gpus.names[index] for index in indices),
    )


def _lack_for_nccl(world_size: int, gpus: Gpus) -> str:
    asked = f"{world_size} rank{'s were' if world_size > 1 else ' was'} asked for, and {_have(gpus)}"
    if not gpus.count:
        return f"NCCL needs a GPU: {asked}. Ask for --backend gloo."
    shared = "`--backend gloo --device cuda` lets them share a GPU without it"
    if not gpus.nccl:
        return f"This build of torch has no NCCL: {asked}; {shared}."
    return (
        f"NCCL {dotted(gpus.nccl)} needs a GPU for each rank: {asked}. From {dotted(SHARING_NCCL)} on ranks "
        f"can share one: `%{newer_nccl(gpus)}`, then restart the kernel. Or ask for fewer ranks; {shared}."
    )


def newer_nccl(gpus: Gpus) -> str:
    """Return the command that installs an NCCL that lets ranks share a GPU, in place of torch's."""
    package = f"nvidia-nccl-cu{gpus.cuda.partition('.')[0]}>={dotted(SHARING_NCCL)}"
    return f"pip install --upgrade --no-deps '{package}'"


def _have(gpus: Gpus) -> str:
    """Say how many GPUs torch can use here, and what explains it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    reasons = [gpus.trouble] if gpus.trouble else []
    reasons += [f"CUDA_VISIBLE_DEVICES is {visible!r}"] if visible is not None else []
    explained = f" ({'; '.join(reasons)})" if reasons else ""
    return f"torch can use {gpus.count or 'no'} GPU{'s' * (gpus.count > 1)} here{explained}"
