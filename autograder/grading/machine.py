"""What a machine must have to grade: a sandbox, and GPUs where checks are to run on NCCL, too."""

from __future__ import annotations

from autograder.grading.records import Terms
from autograder.sandbox import tiers
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.tiers import Tier

_NO_GPUS_THERE = (
    "Grading on NCCL needs the sandbox with namespaces: no other one can use GPUs. Leave out --backend "
    "nccl, or see docs/instructors.md for how to allow bubblewrap."
)
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
    return _lack_for_nccl(tier) if terms.nccl else ""


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
