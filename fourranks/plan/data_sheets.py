"""Published figures of GPUs: memory, arithmetic and links, for the cost model and for lectures.

All figures are nominal: matrix rates are dense, without sparsity, and bandwidths are for one direction where
they say so. Bytes, seconds, bytes per second. `figures.published` names the sources.
"""

from __future__ import annotations

from dataclasses import dataclass

GB, TB = 1e9, 1e12
KIB, MIB = 2**10, 2**20


@dataclass(frozen=True, kw_only=True)
class GpuSpecs:
    """One GPU, as its vendor describes it.

    Attributes:
        sms: streaming multiprocessors.
        register_bytes, l1_bytes: of one SM; L1 is shared with the scratchpad (shared memory, SMEM).
        l2_bytes, hbm_bytes: of the GPU.
        hbm_bandwidth: bytes per second between memory and chip.
        bf16_flops: floating-point operations per second of the tensor cores, dense.
        nvlinks: how many; 0 stands for a bridge between two cards.
        nvlink_bandwidth: bytes per second of all of them, one direction.
        pcie_generation: of its 16 lanes.
    """

    name: str
    sms: int
    register_bytes: float = 256 * KIB
    l1_bytes: float
    l2_bytes: float
    hbm_bytes: float
    hbm_bandwidth: float
    bf16_flops: float
    nvlinks: int
    nvlink_bandwidth: float
    pcie_generation: int

    @property
    def ridge(self) -> float:
        """Operations per byte from which on arithmetic, not memory, sets the pace."""
        return self.bf16_flops / self.hbm_bandwidth

    @property
    def pcie_bandwidth(self) -> float:
        """Bytes per second over PCIe, one direction."""
        return PCIE_BANDWIDTH[self.pcie_generation]


# 16 lanes of each generation, one direction; both together are twice that.
PCIE_BANDWIDTH = {4: 31.5 * GB, 5: 63 * GB, 6: 121 * GB, 7: 242 * GB}

# SMs, KiB of L1 per SM, MiB of L2, GB of HBM and its TB/s, bf16 TFLOP/s, NVLinks, their GB/s, PCIe generation
_SHEET = {
    "A100 SXM": (108, 192, 40, 80, 2.04, 312, 12, 300, 4),
    "H100 PCIe": (114, 256, 50, 80, 2.0, 756, 0, 300, 5),
    "H100 SXM": (132, 256, 50, 80, 3.35, 989, 18, 450, 5),
    "H100 NVL": (132, 256, 50, 94, 3.9, 835, 0, 300, 5),
    "H200 SXM": (132, 256, 50, 141, 4.8, 989, 18, 450, 5),
    "B200 SXM": (148, 256, 126, 180, 8.0, 2250, 18, 900, 5),
}
GPUS = {
    name: GpuSpecs(
        name=name,
        sms=sms,
        l1_bytes=l1 * KIB,
        l2_bytes=l2 * MIB,
        hbm_bytes=hbm * GB,
        hbm_bandwidth=bandwidth * TB,
        bf16_flops=tflops * 1e12,
        nvlinks=nvlinks,
        nvlink_bandwidth=nvlink * GB,
        pcie_generation=pcie,
    )
    for name, (sms, l1, l2, hbm, bandwidth, tflops, nvlinks, nvlink, pcie) in _SHEET.items()
}
