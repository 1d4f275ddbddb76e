"""Published figures of GPUs and links, and listings of real machines, for those who have none at hand.

Lectures draw these figures beside what they measure. All are nominal: matrix rates are dense, without
sparsity, and bandwidths are for one direction where they say so. Bytes, seconds, bytes per second. GPUS, the
data sheets of GPUs, come from `fourranks.plan`, which computes with them.

Sources: NVIDIA's datasheets, tuning guides and DGX user guides, as collected in Bekman, "Machine Learning
Engineering" (compute/accelerator, network); PCI-SIG and IBTA for links; a B200's own answers, in pytorch/ao
4002. The rates of an H100 NVL and its SM and L2 are from third parties. Where no vendor says anything, LADDER
has arithmetic or an order of magnitude, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from ..plan.data_sheets import GB, PCIE_BANDWIDTH, TB
from ..plan.data_sheets import GPUS as GPUS


@dataclass(frozen=True)
class Link:
    """A way out of a GPU: bytes per second and direction, and whether it stays inside the node."""

    name: str
    bandwidth: float
    inside: bool


LINKS = (
    Link("NVLink 5", 900 * GB, inside=True),
    Link("NVLink 4", 450 * GB, inside=True),
    Link("NVLink 3", 300 * GB, inside=True),
    Link("PCIe 5 x16", PCIE_BANDWIDTH[5], inside=True),
    Link("PCIe 4 x16", PCIE_BANDWIDTH[4], inside=True),
    Link("InfiniBand XDR, 800 GbE", 100 * GB, inside=False),
    Link("InfiniBand NDR, 400 GbE", 50 * GB, inside=False),
    Link("InfiniBand HDR", 25 * GB, inside=False),
    Link("100 GbE", 12.5 * GB, inside=False),
    Link("10 GbE", 1.25 * GB, inside=False),
    Link("1 GbE", 0.125 * GB, inside=False),
)


@dataclass(frozen=True)
class Rung:
    """One level of the memory hierarchy of an H100 SXM and what is beyond it; None is not known.

    Attributes:
        size: bytes that it holds for one GPU.
        bandwidth: bytes per second. A memory's are reads and writes together, a link's are one direction.
        latency: seconds, order of magnitude only.
    """

    name: str
    size: float | None = None
    bandwidth: float | None = None
    latency: float | None = None


_CYCLE = 0.6e-9  # seconds, roughly: latencies inside a GPU are counted in cycles
_CLOCK = 1.98e9  # cycles per second, at most
_H100 = GPUS["H100 SXM"]
_POD = 31 * 8  # GPUs in the other nodes of a unit of 32, as NVIDIA builds clusters


def _on_all_sms(bytes_per_cycle: float) -> float:
    """Return the bytes per second of all SMs together: arithmetic, since no vendor publishes it."""
    return _H100.sms * bytes_per_cycle * _CLOCK


LADDER = (
    # 128 multiply-adds a cycle, each of which reads three operands of 4 bytes
    Rung("registers", _H100.sms * _H100.register_bytes, _on_all_sms(128 * 3 * 4), 4 * _CYCLE),
    Rung("L1, shared memory", _H100.sms * _H100.l1_bytes, _on_all_sms(128), 30 * _CYCLE),
    Rung("L2", _H100.l2_bytes, 5.5 * TB, 200 * _CYCLE),  # measured by third parties
    Rung("HBM", _H100.hbm_bytes, _H100.hbm_bandwidth, 600 * _CYCLE),
    Rung("NVLink, to 7 other GPUs", 7 * _H100.hbm_bytes, _H100.nvlink_bandwidth, 1e-6),  # 1 to 2 µs
    Rung("PCIe 5, to the CPUs", 2 * TB, _H100.pcie_bandwidth, 1e-6),  # the memory of a DGX H100
    Rung("InfiniBand NDR, to 31 other nodes", _POD * _H100.hbm_bytes, 50 * GB, 4e-6),  # 2 to 5 µs, GPU to GPU
    Rung("10 GbE, to 31 other nodes", _POD * _H100.hbm_bytes, 1.25 * GB, 30e-6),  # TCP
)

# Measured by others, to have an order of magnitude: seconds.
KERNEL_LAUNCH = 7e-6  # 5 to 10 µs
SMALL_ALL_REDUCE = 44e-6  # NCCL, 32 KiB on 8 GPUs of one node: 40 to 48 µs

# The machines whose `nvidia-smi topo -m` is in topologies/, by the name of its file.
TOPOLOGIES = {
    "8_h100": "8 H100 SXM with NVSwitch, 12 network ports",
    "8_h200": "8 H200 with NVSwitch, 8 network cards in no order",
    "8_a100": "8 A100 SXM with NVSwitch, 12 network cards by their own names",
    "8_v100": "8 V100 with NVLinks between some pairs only",
    "8_p40": "8 P40 under PCIe switches, an old driver",
    "5_pcie": "5 GPUs on PCIe, copied out of a log",
    "4_h100": "4 H100 SXM, a new driver",
    "4_a100": "4 A100 SXM, each joined to each",
    "2_phb": "2 GPUs below one host bridge",
    "2_sys": "2 GPUs at two processors",
    "1_h100": "1 H100: all that a job sees which was given one GPU, or slices of one (MIG)",
}


def topology(name: str) -> str:
    """Return what `nvidia-smi topo -m` printed on the machine of this name, one of TOPOLOGIES.

    Raises:
        KeyError: there is none of this name.
    """
    if name not in TOPOLOGIES:
        raise KeyError(f"there is no listing {name!r}; choose one of {', '.join(TOPOLOGIES)}")
    return (files(__package__) / "topologies" / f"{name}.txt").read_text()
