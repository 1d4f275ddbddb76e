"""The placement of a world: its backend, and a device for each rank.

`place` decides, from the GPUs that there are and what the reader asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from .errors import StartError
from .hardware import Gpus, dotted

BACKEND_NAMES = {"gloo": "Gloo", "nccl": "NCCL"}  # as people write them
BACKEND_VARIABLE = "FOURRANKS_BACKEND"  # of the environment: what "auto" stands for
SHARING_NCCL = (2, 30)  # the first NCCL with NCCL_MULTI_RANK_GPU_ENABLE


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
