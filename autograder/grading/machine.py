"""Requirements of a machine that grades: a sandbox, room, and ways between ranks; for NCCL, GPUs, too."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from autograder.grading.grade_submission import CORES
from autograder.grading.records import Terms
from autograder.sandbox import tiers
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.tiers import Tier

_NO_GPUS_THERE = (
    "Grading on NCCL needs the sandbox with namespaces: no other one can use GPUs. Leave out --backend "
    "nccl, or see docs/instructors.md for how to allow bubblewrap."
)
NEEDED_MEMORY = 1_500_000_000  # bytes, for a submission at a time: docs/instructors.md has what was measured
NEEDED_PROCESSES = 100  # with threads: 80 are enough for the exercises
CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
PROBE = """
import torch.distributed as dist

def add(tensor):
    dist.all_reduce(tensor)
    return tensor.item()
"""


def lack(terms: Terms) -> str:
    """Say what this machine lacks to grade on these terms, and what to do; "" if nothing.

    Ranks would fail for want of it, and every student would lose all points.
    """
    try:
        tier = Tier.NONE if terms.tier is Tier.NONE else tiers.choose(terms.tier)
    except SandboxMissing as error:
        return str(error)
    return (
        too_little_memory()
        or _too_few_processes()
        or _no_loopback(tier)
        or (_lack_for_nccl(tier) if terms.nccl else "")
    )


def too_little_memory() -> str:
    """Say that there is less memory than grading takes; "" if there is enough."""
    most, where = _memory()
    if most >= NEEDED_MEMORY:
        return ""
    return f"Grading takes {NEEDED_MEMORY / 1e9:g} GB of memory, and this {where} has {most / 1e9:.2f}."


def jobs(cores: int) -> int:
    """Return how many submissions these cores, and this machine's memory, have room for at a time."""
    return int(min(cores // CORES, _memory()[0] / NEEDED_MEMORY))


def _memory() -> tuple[float, str]:
    """Return the bytes that this process may have at most, and whose limit that is."""
    limits = ("memory.max", "memory.limit_in_bytes")  # of the two versions of cgroups
    allowed = min(
        (_number(folder / name) for folder in _cgroups("memory") for name in limits), default=math.inf
    )
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min((allowed, "container or job"), (own, "machine"))


def _too_few_processes() -> str:
    room = min(map(_room_for_processes, _cgroups("pids")), default=math.inf)
    if room >= NEEDED_PROCESSES:
        return ""
    return (
        f"Grading takes {NEEDED_PROCESSES} processes and threads, and this container or job has room for "
        f"{room:g}: raise its limit, as by `docker run --pids-limit=-1`."
    )


def _room_for_processes(cgroup: Path) -> float:
    most = _number(cgroup / "pids.max")
    return most if most == math.inf else most - _number(cgroup / "pids.current")


def _no_loopback(tier: Tier) -> str:
    """Say that ranks cannot reach each other; a sandbox with namespaces has a loopback of its own."""
    if tier is Tier.NAMESPACES:
        return ""
    from fourranks.doctor.system import loopback

    finding = loopback()
    return f"There is {finding.found}. {finding.advice}" if finding.advice else ""


def _cgroups(controller: str) -> Iterator[Path]:
    """Yield the folders with the limits of this process: of its cgroup, and of all that this lies in."""
    for line in PROCESS_CGROUPS.read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        version_1 = controller in controllers.split(",")
        if version_1 or not controllers:
            top = CGROUPS / controller if version_1 else CGROUPS
            own = top / name.lstrip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def _number(path: Path) -> float:
    with contextlib.suppress(OSError, ValueError):  # a container does not see the folder of its own name
        return int(path.read_text())
    return math.inf


def _lack_for_nccl(tier: Tier) -> str:
    """Say what is lacking for a world of two ranks, the smallest."""
    if tier.launch_on_gpus is None:
        return _NO_GPUS_THERE
    from fourranks import zygote  # a process that asks torch for GPUs: only this needs one
    from fourranks.errors import StartError
    from fourranks.placement import place

    try:
        place(2, "nccl", "auto", zygote.shared().gpus)
    except StartError as error:
        return f"This machine cannot grade on NCCL. {error}"
    return trouble_on_nccl(tier)


def trouble_on_nccl(tier: Tier) -> str:
    """Say why ranks in the sandbox with GPUs cannot add two numbers; "" if they can.

    What NCCL lacks there would otherwise cost every student all points.
    """
    import torch

    from autograder.inside.runs import RunFailed
    from autograder.sandbox.student_process import StudentProcess

    with StudentProcess([PROBE], tier.launch, launch_on_gpus=tier.launch_on_gpus) as process:
        try:
            process.function("add").run([(torch.ones(1),)] * 2, backend="nccl")
        except RunFailed as failure:
            return f"NCCL does not work in the sandbox, so no submission was graded: {failure.message}"
    return ""
