"""What a machine must have to grade: a sandbox with ranks in it that communicate; for NCCL, GPUs, too."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path

from autograder.grading.pool import Failed, Pool, usable_cores
from autograder.grading.records import Terms
from autograder.sandbox import tiers
from autograder.sandbox.launch import Ahead
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.tiers import Tier

_NO_GPUS_THERE = (
    "Grading on NCCL needs the sandbox with namespaces: no other one can use GPUs. Leave out --backend "
    "nccl, or see docs/instructors.md for how to allow bubblewrap."
)
WORLD_SIZES = {"gloo": 8, "nccl": 2}  # with which it is tried: few cases have more ranks, or fewer GPUs
NEEDED_MEMORY = 1_500_000_000  # bytes, for a submission at a time: docs/instructors.md has what was measured
CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
TIME = 300.0  # seconds for it, which takes three
NAMES = {"gloo": "Gloo", "nccl": "NCCL"}
PROBE = """
import torch.distributed as dist

def add(tensor):
    dist.all_reduce(tensor)
    return tensor.item()
"""


def lack(terms: Terms) -> str:
    """Say what this machine lacks to grade on these terms, and what to do; "" if nothing."""
    try:
        tier = Tier.NONE if terms.tier is Tier.NONE else tiers.choose(terms.tier)
    except SandboxMissing as error:
        return str(error)
    return too_little_memory() or (terms.nccl and _lack_for_nccl(tier)) or trouble(tier)


def too_little_memory() -> str:
    """Say that there is less memory than grading takes; "" if there is enough."""
    most = min((_number(path) for path in _memory_limits()), default=math.inf)
    if most >= NEEDED_MEMORY:
        return ""
    return (
        f"Grading takes {NEEDED_MEMORY / 1e9:g} GB of memory, and this container or job has {most / 1e9:.2f}."
    )


def _memory_limits() -> Iterator[Path]:
    """Yield the files that limit the memory of this process: of its cgroup, and of all that this lies in."""
    for line in PROCESS_CGROUPS.read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        version_1 = "memory" in controllers.split(",")
        if version_1 or not controllers:
            top = CGROUPS / "memory" if version_1 else CGROUPS
            own = top / name.lstrip("/")
            for folder in (own, *own.parents):
                yield folder / ("memory.limit_in_bytes" if version_1 else "memory.max")
                if folder == top:
                    break


def _number(path: Path) -> float:
    with contextlib.suppress(
        OSError, ValueError
    ):  # in a container, the folder of its own name may be missing
        return int(path.read_text())
    return math.inf


def _lack_for_nccl(tier: Tier) -> str:
    """Say what is lacking for a world of two ranks, the smallest."""
    if tier.launch_on_gpus is None:
        return _NO_GPUS_THERE
    from fourranks import zygote  # a process that asks torch for GPUs: only this needs one
    from fourranks.errors import StartError
    from fourranks.hardware import place

    try:
        place(2, "nccl", "auto", zygote.shared().gpus)
    except StartError as error:
        return f"This machine cannot grade on NCCL. {error}"
    return trouble(tier, "nccl")


def trouble(tier: Tier, backend: str = "gloo") -> str:
    """Say why ranks in the sandbox cannot add numbers; "" if they can.

    What they lack there would otherwise cost every student all points. A process of its own tries it: where
    memory runs out, that ends.
    """
    with Pool(_failure, [tuple(usable_cores())], TIME) as pool:
        ((_, failure),) = pool.results([(PROBE, tier, backend)])
    reason = failure.reason if isinstance(failure, Failed) else failure
    what = f"{WORLD_SIZES[backend]} ranks cannot add numbers on {NAMES[backend]} here"
    return reason and f"{what}, so no submission was graded: {reason}"


def _failure(tried: tuple[str, Tier, str]) -> str:
    """Say why ranks cannot run a function `add` on a backend; "" if they can."""
    program, tier, backend = tried
    try:
        with contextlib.closing(Ahead(tier.launch)) as launch:  # it starts while this process imports torch
            import torch

            from autograder.inside.runs import RunFailed
            from autograder.sandbox.student_process import StudentProcess

            with StudentProcess([program], launch, launch_on_gpus=tier.launch_on_gpus) as process:
                try:
                    process.function("add").run([(torch.ones(1),)] * WORLD_SIZES[backend], backend=backend)
                except RunFailed as failure:
                    return _without_output(failure.message)
    except SandboxMissing as error:
        return str(error)
    return ""


def _without_output(message: str) -> str:
    """Return a message in one line, and of what ranks printed the first error alone."""
    own = [text for text in message.splitlines() if not text.startswith("[")]
    return " ".join([*own, *re.findall(r"^\[[-\d]+\] (\w+Error: .*)", message, re.MULTILINE)[:1]])
