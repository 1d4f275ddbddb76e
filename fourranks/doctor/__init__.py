"""`fourranks doctor`: is this machine fit for the course, and if not, what to do about it.

`report` prints what the checks find; the checks themselves are in `system` (limits, memory, sandbox), `gpus`
(driver, GPUs, links, by `topology`) and `worlds` (ranks that are really started).
"""

from __future__ import annotations

from . import gpus, system, worlds
from .report import Check, report

QUICK = [
    Check("Python and torch", system.python_and_torch),
    Check("CUDA driver", gpus.driver),
    Check("GPUs", gpus.gpus),
    Check("GPU links", gpus.links),
    Check("NCCL", gpus.nccl),
    Check("Processors", system.processors),
    Check("Memory", system.memory),
    Check("Shared memory", system.shared_memory),
    Check("Open files", system.open_files),
    Check("Processes", system.processes),
    Check("Loopback", system.loopback),
    Check("Sandbox", system.sandbox),
    Check("Ranks", worlds.ranks),
]
BANDWIDTH = [
    Check("Gloo bandwidth", worlds.gloo_bandwidth),
    Check("NCCL bandwidth", worlds.nccl_bandwidth),
    Check("NCCL, shared GPU", worlds.nccl_sharing),
]


def main(quick: bool) -> int:
    """Run the checks, print what they find; returns the exit code, 1 if there is a problem.

    Args:
        quick: leave the bandwidth checks out.
    """
    return report(QUICK if quick else QUICK + BANDWIDTH)
